"""
Hidden units of a convolutional network
=======================================

A small convolutional network classifies handwritten digits. This example ranks the pairs of units of its hidden layer,
and shows the images that activate the units of the strongest pairs most.
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
layers = {
    **{"conv1": nn.Conv2d(1, 8, 3, padding=1), "relu1": nn.ReLU(), "pool": nn.MaxPool2d(2)},
    **{"conv2": nn.Conv2d(8, 12, 3, padding=1), "relu2": nn.ReLU(), "drop": nn.Dropout(0.1), "flat": nn.Flatten()},
    **{"hidden": nn.Linear(12 * 4 * 4, 32), "relu3": nn.ReLU(), "digit": nn.Linear(32, 10)},
}
net = nn.Sequential(OrderedDict(layers))
optimiser = torch.optim.Adam(net.parameters(), lr=3e-3)
for _ in range(15):
    for batch in torch.randperm(1200).split(50):
        optimiser.zero_grad()
        nn.functional.cross_entropy(net(images[batch]), labels[batch]).backward()
        optimiser.step()
net.eval()
correct = net(images[1200:]).argmax(1) == labels[1200:]
print(f"accuracy on test images: {correct.float().mean():.0%}")

# %%
# Scores
# ------
#
# The layer is given by its name. ``target`` holds the label of each image, so that the probability of the correct digit
# is explained. The probability is used because a logit is a sum of functions of single units of this layer, in which
# units do not interact.

explainer = geh.GEHExplainer(net, layer="hidden", output="probability")
result = explainer.explain(images[1200:], target=labels[1200:], groups=3, draws=50, scale="std", progress=False)
print(result)

# %%
# Images that activate the units
# ------------------------------
#
# For the strongest pairs, ``interpret`` finds the training images with the largest activations of the first unit, of
# the second one, and of both. ``readings`` summarises them by their most frequent label.

gallery = explainer.interpret(result, images[:1200], pairs=3, ascent=False, progress=False)
print(gallery.readings(labels[:1200]))

# %%
# Some units respond to one digit, others to a stroke that several digits share. On the right is the signed effect of
# the pair in each group. A positive effect means that an active unit increases the effect of the other one. A negative
# effect means that it decreases it, as for two units that detect the same pattern.

figure = gallery.plot(labels[:1200])
figure.savefig("cnn_gallery.png", dpi=100)

# %%
# Page
# ----
#
# The report shows the scores and, for each selected pair, its images.

print(result.report("cnn_gallery.html", gallery=gallery))
