"""
Channels of a ResNet
====================

Which channels of a ResNet act together, and what do they respond to? A torchvision ResNet-18 learns from drawn pictures
whether a red circle and a blue square are both there. Of the 256 channels of its third stage the ones that matter most
are found first, then explained in pairs, and shown with the pictures that excite them.
"""

import numpy as np
import torch
from torch import nn

import geh_explain as geh
from geh_explain.vision import torchvision  # imports it also where its operators do not match torch's build

COLOURS = {"red": (0.9, 0.15, 0.15), "blue": (0.15, 0.3, 0.9), "green": (0.1, 0.7, 0.25)}
SHAPES = ("circle", "square", "triangle")


def paint(picture, shape, colour, row, column, radius):
    """Draw one shape into a picture (3, 32, 32)."""
    y, x = torch.meshgrid(torch.arange(32) - row, torch.arange(32) - column, indexing="ij")
    inside = {
        "circle": x**2 + y**2 <= radius**2,
        "square": (x.abs() <= 0.85 * radius) & (y.abs() <= 0.85 * radius),
        "triangle": (y <= radius) & (y >= 2 * x.abs() - radius),
    }[shape]
    picture[:, inside] = torch.tensor(COLOURS[colour])[:, None]


def draw(count, seed, most=2):
    """Return pictures of up to two shapes, whether they are the two looked for, and what is shown."""
    rng = np.random.default_rng(seed)
    pictures, wanted, words = torch.full((count, 3, 32, 32), 0.95), torch.zeros(count), []
    for number, picture in enumerate(pictures):
        things = [(rng.choice(SHAPES), rng.choice(list(COLOURS))) for _ in range(2)]
        if rng.random() < 0.4:
            things = [("circle", "red"), ("square", "blue")]
        things = [tuple(thing) for thing in rng.permutation(things)[:most]]
        for place, thing in enumerate(things):
            paint(picture, *thing, rng.integers(9, 23), rng.integers(7, 10) + 16 * place, rng.integers(5, 7))
        wanted[number] = set(things) == {("circle", "red"), ("square", "blue")}
        words.append(" and ".join(sorted(f"{colour} {shape}" for shape, colour in things)))
    return pictures + 0.03 * torch.from_numpy(rng.standard_normal(pictures.shape)).float(), wanted, words


# %%
# The network is trained from scratch, which takes most of the time of this example.

torch.manual_seed(0)
net = torchvision("models").resnet18(num_classes=1)
pictures, wanted, _ = draw(1000, seed=0)
optimiser = torch.optim.Adam(net.parameters())
schedule = torch.optim.lr_scheduler.OneCycleLR(optimiser, max_lr=2e-3, total_steps=5 * 20)
for _ in range(5):
    for batch in torch.randperm(1000).split(50):
        optimiser.zero_grad()
        nn.functional.binary_cross_entropy_with_logits(net(pictures[batch])[:, 0], wanted[batch]).backward()
        optimiser.step()
        schedule.step()
net.eval()
pictures, wanted, _ = draw(400, seed=1)
with torch.no_grad():
    print(f"accuracy on new pictures: {((net(pictures)[:, 0] > 0) == wanted.bool()).float().mean():.0%}")

# %%
# 256 channels make 32640 pairs. ``screen`` ranks the channels by their gradients, at the cost of a backward pass, and
# what it returns says which units to explain. The network has no dropout, so there is a single draw: scores without
# intervals.

posterior = geh.posterior.PointEstimate()
every = geh.GEHExplainer(net, "layer3", output="probability", posterior=posterior)
strongest = every.screen(pictures[:64], keep=32, progress=False)
explainer = geh.GEHExplainer(net, "layer3", units=strongest, output="probability", posterior=posterior)
result = explainer.explain(pictures[:64], groups=3, scale="std", progress=False)
print(result.top(5)[["unit_i", "unit_j", "mean"]])

# %%
# What do the channels of the two strongest pairs respond to? Pictures of a single shape tell most clearly, and those
# of two what excites both. Below is what gradient ascent paints.

single, _, words = draw(200, seed=2, most=1)
ascent = {"limits": (0, 1), "steps": 64}
gallery = explainer.interpret(result, single, pairs=2, joint=pictures, ascent=ascent, progress=False)
print(gallery.readings(words)[["unit_i", "reads_i", "unit_j", "reads_j"]].to_string())
figure = gallery.plot(words)
figure.savefig("resnet_channels.png", dpi=100)

# %%
# The page holds all of it, with pictures beside their pairs.

print(result.report("resnet_channels.html", gallery=gallery))
