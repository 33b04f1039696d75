"""
2. Hidden units of a vision network
===================================

You have a trained vision network. This step finds pairs of hidden units that act together, tests them on held-out
labels, and shows the images that the units respond to.
"""

import torch
from sklearn.datasets import load_digits
from torch import nn

import geh_explain as geh

# %%
# A trained network
# -----------------
#
# An image shows two handwritten digits, a quantity on the left and a price on the right. The label is the amount,
# quantity times price. The network is trained on amounts alone, and is never told which digits it sees.
#
# To use this page for a network of your own, replace this part. Images are a tensor (n, C, H, W), a Dataset or a
# DataLoader, normalised as in training.

digits = load_digits()
images = torch.tensor(digits.images / 16, dtype=torch.float32)
values = torch.tensor(digits.target, dtype=torch.float32)


def forms(left, right):
    """Return images (n, 1, 8, 16) of two digits side by side, and the amounts (n, 1)."""
    return torch.cat([images[left], images[right]], dim=2)[:, None], (values[left] * values[right])[:, None]


torch.manual_seed(1)
known, held_out = torch.randperm(len(images)).split(900)
x, y = forms(known[torch.randint(900, (8000,))], known[torch.randint(900, (8000,))])
x_held, y_held = forms(held_out, held_out[torch.randperm(len(held_out))])

net = nn.Sequential(
    *(nn.Conv2d(1, 16, 3, padding=1), nn.ReLU(), nn.Conv2d(16, 16, 3, padding=1), nn.ReLU(), nn.MaxPool2d(2)),
    *(nn.Dropout(0.1), nn.Conv2d(16, 3, 4, stride=4), nn.Sigmoid(), nn.Flatten()),
    *(nn.Linear(6, 32), nn.GELU(), nn.Dropout(0.05), nn.Linear(32, 1)),
)
optimiser = torch.optim.AdamW(net.parameters(), lr=3e-3)
schedule = torch.optim.lr_scheduler.CosineAnnealingLR(optimiser, 20)
for _ in range(20):
    for batch in torch.randperm(len(x)).split(100):
        optimiser.zero_grad()
        nn.functional.mse_loss(net(x[batch]), (y[batch] - 20) / 20).backward()
        optimiser.step()
    schedule.step()
net = net.eval()


def amount(output):
    """Undo the standardisation of the labels."""
    return 20 * output + 20


with torch.no_grad():
    rest = amount(net(x_held)) - y_held
print(f"{1 - rest.var() / y_held.var():.0%} of the variance of held-out amounts is explained")

# %%
# A layer and its units
# ---------------------
#
# ``layer`` is a name from ``print(net)``, or the module itself. The output of layer 8 has six neurons: three numbers
# that the network reads from the left digit, and the same three from the right one. In a convolution a unit is a
# channel, which moves as a whole.
#
# Scores can be had for every layer; ``evidence`` suits layers with few numbers, for instance after pooling. A
# classifier needs ``target``, the class to explain, or one class per image.
#
# ``output=amount`` gives scores the unit of the labels. With ``scale="std"`` a score is the change of the amount when
# both neurons move by one standard deviation, beyond the sum of what each does alone.

explainer = geh.GEHExplainer(net, layer="8", output=amount)
names = [f"{side} {number}" for number in "ABC" for side in ("left", "right")]
options = {"names": names, "scale": "std", "groups": 1, "draws": 50, "progress": False}
result = explainer.explain(x_held, evidence=(x_held, y_held), **options)
print(result.table()[["unit_i", "unit_j", "mean", "slope", "p_value", "significant"]].round(3))

# %%
# The strongest pairs join a neuron of the left digit and one of the right digit, and held-out amounts support them:
# the network multiplies what it reads on both sides. Pairs within a digit are weak. In networks with other seeds some
# of them are significant as well, since the value of a digit is itself a function of three numbers.
#
# What they respond to
# --------------------
#
# For the strongest pairs ``interpret`` finds the images that excite the first neuron, the second one, and both. Each
# neuron responds to some digits on its side, whatever is on the other side.

gallery = explainer.interpret(result, x, pairs=2, k=6, ascent=False, progress=False)
figure = gallery.plot()
figure.savefig("step2_vision.png", dpi=80)

# %%
# The page shows scores and images together. Without ``ascent=False`` images are synthesised by gradient ascent, too.

print(result.report("digits.html", gallery=gallery))

# %%
# Go on
# -----
#
# - Next step: :doc:`3. One prediction </gallery/tutorial/step3_one_prediction>`.
# - :doc:`Explain a trained vision network </vision>` does the same for EfficientNet-Lite0 with ImageNet weights, which
#   the extra ``trained`` installs. ``screen`` finds the channels that matter among hundreds.
# - :doc:`Interpret hidden units </hidden_units>` has all options.
