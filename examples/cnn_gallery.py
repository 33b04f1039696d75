"""
Hidden units of a convolutional network
=======================================

That unit 3 and unit 17 act together says little until one sees what they stand for. A small convolutional network
learns to read digits; we explain the units of its hidden layer, and look at the digits that excite the strongest pairs.
"""

from collections import OrderedDict

import torch
from sklearn.datasets import load_digits
from torch import nn

import geh_explain as geh

digits = load_digits()
images = torch.tensor(digits.images[:, None] / 16, dtype=torch.float32)
labels = torch.tensor(digits.target)

torch.manual_seed(0)
parts = {
    **{"conv1": nn.Conv2d(1, 8, 3, padding=1), "relu1": nn.ReLU(), "pool": nn.MaxPool2d(2)},
    **{"conv2": nn.Conv2d(8, 12, 3, padding=1), "relu2": nn.ReLU(), "drop": nn.Dropout(0.1), "flat": nn.Flatten()},
    **{"hidden": nn.Linear(12 * 4 * 4, 32), "relu3": nn.ReLU(), "digit": nn.Linear(32, 10)},
}
net = nn.Sequential(OrderedDict(parts))
optimiser = torch.optim.Adam(net.parameters(), lr=3e-3)
for _ in range(15):
    for batch in torch.randperm(1200).split(50):
        optimiser.zero_grad()
        nn.functional.cross_entropy(net(images[batch]), labels[batch]).backward()
        optimiser.step()
net.eval()
right = net(images[1200:]).argmax(1) == labels[1200:]
print(f"{right.float().mean():.0%} of the other digits are read correctly")

# %%
# The layer is given by its name, and ``target`` by the labels: what is explained is the probability of the right
# digit. (From this layer on, a logit is a sum over units, so that no two of them could act together in it.)

explainer = geh.GEHExplainer(net, layer="hidden", output="probability")
result = explainer.explain(images[1200:], target=labels[1200:], groups=3, draws=50, scale="std", progress=False)
print(result)

# %%
# For the strongest pairs, ``interpret`` finds the digits that excite the one unit most, the other, and both. With
# labels it puts units into words: the digit that most of them show.

gallery = explainer.interpret(result, images[:1200], pairs=3, ascent=False, progress=False)
print(gallery.readings(labels[:1200]))

# %%
# Some units stand for one digit rather clearly, others for a stroke that several digits have. On the right is the
# signed effect of a pair in each region of the data. Where it is positive, the two count for more together than each
# alone; where it is negative, they stand in for each other: once one has spoken, the other adds less.

figure = gallery.plot(labels[:1200])
figure.savefig("cnn_gallery.png", dpi=100)

# %%
# All of it on one page, to open in a browser or to send to a colleague. Choose a pair there, and its digits appear.

print(result.report("cnn_gallery.html", gallery=gallery))
