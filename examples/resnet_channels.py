"""
Channels of a ResNet
====================

A torchvision ResNet-18 is trained on drawn images to detect whether a red circle and a blue square are both present.
This example selects the most important of the 256 channels of its third stage, ranks their pairs, and shows the images
that activate them.
"""

import numpy as np
import torch
from torch import nn

import geh_explain as geh
from geh_explain.vision import torchvision  # also works if torchvision's operators do not match the build of torch

COLOURS = {"red": (0.9, 0.15, 0.15), "blue": (0.15, 0.3, 0.9)}
KINDS = [(shape, colour) for shape in ("circle", "square") for colour in COLOURS]
ROWS, COLUMNS = torch.meshgrid(torch.arange(32), torch.arange(32), indexing="ij")


def draw_images(n_images, seed, max_shapes=2):
    """Return images (n, 3, 32, 32) of one or two shapes, targets (n,) and descriptions.

    The target is 1 if the shapes are a red circle and a blue square.
    """
    rng = np.random.default_rng(seed)
    images, targets, descriptions = torch.full((n_images, 3, 32, 32), 0.95), torch.zeros(n_images), []
    for number, image in enumerate(images):
        kinds = rng.permutation([0, 3] if rng.random() < 0.4 else rng.integers(0, 4, 2))[:max_shapes]
        for position, kind in enumerate(kinds):
            shape, colour = KINDS[kind]
            y, x = ROWS - rng.integers(9, 23), COLUMNS - rng.integers(7, 10) - 16 * position
            distance = (x**2 + y**2).sqrt() if shape == "circle" else torch.maximum(x.abs(), y.abs()) / 0.85
            image[:, distance <= rng.integers(5, 7)] = torch.tensor(COLOURS[colour])[:, None]
        targets[number] = set(kinds) == {0, 3}
        descriptions.append(" and ".join(f"{KINDS[kind][1]} {KINDS[kind][0]}" for kind in sorted(kinds)))
    return images + 0.03 * torch.from_numpy(rng.standard_normal(images.shape)).float(), targets, descriptions


# %%
# Training
# --------
#
# The network is trained from scratch. This takes most of the time of the example.

torch.manual_seed(0)
net = torchvision("models").resnet18(num_classes=1)
images, targets, _ = draw_images(800, seed=0)
optimiser = torch.optim.Adam(net.parameters())
schedule = torch.optim.lr_scheduler.OneCycleLR(optimiser, max_lr=2e-3, total_steps=6 * 16)
for _ in range(6):
    for batch in torch.randperm(800).split(50):
        optimiser.zero_grad()
        nn.functional.binary_cross_entropy_with_logits(net(images[batch])[:, 0], targets[batch]).backward()
        optimiser.step()
        schedule.step()
net.eval()
images, targets, _ = draw_images(400, seed=1)
with torch.no_grad():
    print(f"accuracy on test images: {((net(images)[:, 0] > 0) == targets.bool()).float().mean():.0%}")

# %%
# Scores
# ------
#
# 256 channels have 32,640 pairs. ``screen`` ranks the channels by their gradients, at the cost of a backward pass, and
# returns the 32 strongest as a unit set. The groups are the images with and without both shapes. The network has no
# dropout, so there is one draw, and intervals are over images like these.

x, point = images[:100], geh.posterior.PointEstimate()
all_channels = geh.GEHExplainer(net, "layer3", output="probability", posterior=point)
strongest = all_channels.screen(x, keep=32, progress=False)
explainer = geh.GEHExplainer(net, "layer3", units=strongest, output="probability", posterior=point)
groups = np.where(targets[:100] > 0, "both shapes", "not both")
result = explainer.explain(x, groups=groups, scale="std", progress=False)
print(result.top(5)[["unit_i", "unit_j", "mean"]])

# %%
# Images that activate the channels
# ---------------------------------
#
# Candidates for single channels are images of one shape; candidates for both channels of a pair are images of two. A
# ring marks the maximum of a channel's feature map. The map has 2 x 2 positions, each of which covers most of the
# image, so the ring need not be on the shape.

candidates, _, descriptions = draw_images(200, seed=2, max_shapes=1)
gallery = explainer.interpret(result, candidates, pairs=2, joint=images, ascent=False, progress=False)
print(gallery.readings(descriptions)[["unit_i", "reads_i", "unit_j", "reads_j"]].to_string())
figure = gallery.plot(descriptions)
figure.savefig("resnet_channels.png", dpi=100)

# %%
# The channels respond to red circles or to blue squares, and both channels of a pair to images with both. Which
# channels have the largest scores differs between trainings, and between numbers of threads: the two channels of a pair
# may respond to one shape each, or to the same one. Interactions are positive where the shapes are not both present,
# and negative where they are. This is the curvature of a probability, which is convex where it is low and concave where
# it is high.
#
# The report contains the scores and the images.

print(result.report("resnet_channels.html", gallery=gallery))
