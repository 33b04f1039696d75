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

COLOURS = {"red": (0.9, 0.15, 0.15), "blue": (0.15, 0.3, 0.9)}
KINDS = [(shape, colour) for shape in ("circle", "square") for colour in COLOURS]
DOWN, ACROSS = torch.meshgrid(torch.arange(32), torch.arange(32), indexing="ij")


def draw(count, seed, most=2):
    """Return pictures (n, 3, 32, 32) of up to two shapes, whether they are the two looked for, and what is shown."""
    rng = np.random.default_rng(seed)
    pictures, wanted, words = torch.full((count, 3, 32, 32), 0.95), torch.zeros(count), []
    for number, picture in enumerate(pictures):
        things = rng.permutation([0, 3] if rng.random() < 0.4 else rng.integers(0, 4, 2))[:most]
        for place, thing in enumerate(things):
            shape, colour = KINDS[thing]
            y, x = DOWN - rng.integers(9, 23), ACROSS - rng.integers(7, 10) - 16 * place
            far = (x**2 + y**2).sqrt() if shape == "circle" else torch.maximum(x.abs(), y.abs()) / 0.85
            picture[:, far <= rng.integers(5, 7)] = torch.tensor(COLOURS[colour])[:, None]
        wanted[number] = set(things) == {0, 3}
        words.append(" and ".join(f"{KINDS[thing][1]} {KINDS[thing][0]}" for thing in sorted(things)))
    return pictures + 0.03 * torch.from_numpy(rng.standard_normal(pictures.shape)).float(), wanted, words


# %%
# The network is trained from scratch, which takes most of the time of this example.

torch.manual_seed(0)
net = torchvision("models").resnet18(num_classes=1)
pictures, wanted, _ = draw(800, seed=0)
optimiser = torch.optim.Adam(net.parameters())
schedule = torch.optim.lr_scheduler.OneCycleLR(optimiser, max_lr=2e-3, total_steps=6 * 16)
for _ in range(6):
    for batch in torch.randperm(800).split(50):
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
# what it returns says which units to explain. The regions are named by what is asked: are both shapes there? The
# network has no dropout, so there is a single draw, and scores have no intervals.

shown, posterior = pictures[:100], geh.posterior.PointEstimate()
every = geh.GEHExplainer(net, "layer3", output="probability", posterior=posterior)
strongest = every.screen(shown, keep=32, progress=False)
explainer = geh.GEHExplainer(net, "layer3", units=strongest, output="probability", posterior=posterior)
regions = np.where(wanted[:100] > 0, "both there", "not both")
result = explainer.explain(shown, groups=regions, scale="std", progress=False)
print(result.top(5)[["unit_i", "unit_j", "mean"]])

# %%
# What do the channels of the strongest pairs respond to? Pictures of a single shape tell most clearly, and those of
# two shapes show what excites both channels. A ring marks the maximum of a channel's map; with only 2 by 2 places,
# each of which sees most of the picture, it need not be on the shape.

single, _, words = draw(200, seed=2, most=1)
gallery = explainer.interpret(result, single, pairs=2, joint=pictures, ascent=False, progress=False)
print(gallery.readings(words)[["unit_i", "reads_i", "unit_j", "reads_j"]].to_string())
figure = gallery.plot(words)
figure.savefig("resnet_channels.png", dpi=100)

# %%
# The channels respond to the shapes that are looked for, and what excites both are red circles beside blue squares.
# Which channels lead differs from training to training, and even with the number of threads: the two of a pair may
# respond to one shape each, or to the same. The signs tell how the answer is put together. While the two shapes are
# not both there, one channel makes the other count for more; where they are, it makes it count for less. This is how a
# probability bends: upwards while it is low, downwards when it is high.
#
# The page holds all of it, with pictures beside their pairs.

print(result.report("resnet_channels.html", gallery=gallery))
