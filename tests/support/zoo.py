"""Architectures that people use, small and with random weights, each with a layer in its middle.

Nothing is downloaded, and nothing but torch is imported before a model is built.
"""

from __future__ import annotations

import importlib.util
import warnings
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from geh_explain.vision import torchvision

CLASSES = 5
TOKENS = 40  # size of the vocabulary of the language models


@dataclass(frozen=True)
class Entry:
    """One architecture, and what is asked of it."""

    name: str
    family: str
    layer: str
    #: The channel dimension of the layer's output, batch included.
    axis: int
    build: Callable[[], nn.Module]
    #: Makes that many rows of inputs.
    rows: Callable[[int], Tensor]
    #: Picks the logits (n, classes) from what the model returns.
    logits: Callable[[Any], Tensor] = lambda out: out
    #: Kinked functions between the layer and the output, as torch calls them.
    kinks: tuple[str, ...] = ()
    units: tuple[int, ...] = (0, 3, 5, 8, 11)
    target: int = 1
    needs: str = "torch"

    @property
    def missing(self) -> bool:
        """Tell whether the library that this needs is not installed."""
        return importlib.util.find_spec(self.needs) is None

    def make(self) -> tuple[nn.Module, Tensor]:
        """Build the model, in eval mode and awake, with eight rows of inputs; the same every time."""
        with torch.random.fork_rng(devices=[]), warnings.catch_warnings():
            warnings.simplefilter("ignore")  # what a library says about its own defaults
            torch.manual_seed(0)
            model = self.build().eval()
            awaken(model, self.rows, self.logits)
            return model, self.rows(8)


def awaken(model: nn.Module, rows: Callable[[int], Tensor], logits: Callable[[Any], Tensor]) -> None:
    """Give a network with random weights outputs that vary as those of a trained one do.

    Deep networks fade at initialisation and some start with a head of zeros. So BatchNorm takes its statistics
    from a few batches, and the head is scaled so that each logit has mean 0 and the logits vary by about 1.
    """
    norms = [module for module in model.modules() if isinstance(module, nn.modules.batchnorm._BatchNorm)]
    head = [module for module in model.modules() if isinstance(module, (nn.Linear, nn.Conv2d))][-1]
    with torch.no_grad():
        if not head.weight.any():
            nn.init.normal_(head.weight)
        for norm in norms:
            norm.train().momentum = None  # the plain mean over the batches
            norm.reset_running_stats()
        for _ in range(4 if norms else 0):
            model(rows(16))
        for norm in norms:
            norm.eval()
        if head.bias is not None:
            head.bias.zero_()
        out = logits(model(rows(32)))
        head.weight.div_(out.std(dim=0).mean())
        if head.bias is not None:
            head.bias.sub_(logits(model(rows(32))).mean(dim=0))


def images(size: int) -> Callable[[int], Tensor]:
    """Return a maker of images with blobs of colour, which differ more than noise does."""

    def rows(count: int) -> Tensor:
        blobs = F.interpolate(torch.randn(count, 3, 4, 4), (size, size), mode="bicubic", align_corners=False)
        return blobs * (0.5 + torch.rand(count, 1, 1, 1)) + torch.randn(count, 3, 1, 1) + 0.1 * torch.randn_like(blobs)

    return rows


def sentences(count: int) -> Tensor:
    return torch.randint(0, TOKENS, (count, 7))


class LSTMClassifier(nn.Module):
    """Embedding, two-layer LSTM, the last state read out."""

    def __init__(self) -> None:
        super().__init__()
        self.embedding = nn.Embedding(TOKENS, 16)
        self.lstm = nn.LSTM(16, 24, num_layers=2, batch_first=True)
        self.head = nn.Linear(24, CLASSES)

    def forward(self, tokens: Tensor) -> Tensor:
        states, _ = self.lstm(self.embedding(tokens))
        return self.head(states[:, -1])


def vision(name: str, family: str, layer: str, *kinks: str, size: int = 64, axis: int = 1, **settings: Any) -> Entry:
    """One of torchvision's models by name."""

    def build() -> nn.Module:
        return getattr(torchvision("models"), name)(weights=None, num_classes=CLASSES, **settings)

    return Entry(name, family, layer, axis, build, images(size), kinks=kinks, needs="torchvision")


def custom(
    name: str, family: str, layer: str, *kinks: str, make: Callable[[Any], nn.Module], size: int = 32, axis: int = -1
) -> Entry:
    """One of torchvision's families in a size of our own: ``make`` takes torchvision.models."""

    def build() -> nn.Module:
        return make(torchvision("models"))

    return Entry(name, family, layer, axis, build, images(size), kinks=kinks, needs="torchvision")


def hugging_face(
    name: str,
    family: str,
    layer: str,
    make: Callable[[Any], nn.Module],
    rows: Callable[[int], Tensor],
    logits: Callable[..., Tensor],
) -> Entry:
    """One of Hugging Face's models: ``make`` takes transformers."""

    def build() -> nn.Module:
        torchvision()  # transformers imports it, and does not survive operators that do not load
        return make(importlib.import_module("transformers"))

    return Entry(f"hf/{name}", f"{family}, Hugging Face", layer, -1, build, rows, logits, needs="transformers")


def _vit(models: Any) -> nn.Module:
    return models.VisionTransformer(
        image_size=32, patch_size=8, num_layers=3, num_heads=4, hidden_dim=32, mlp_dim=64, num_classes=CLASSES
    )


def _wide_resnet(models: Any) -> nn.Module:
    parts = models.resnet
    return parts.ResNet(parts.Bottleneck, [1, 1, 2, 1], width_per_group=128, num_classes=CLASSES)


def _efficientnet_v2(models: Any) -> nn.Module:
    fused, plain = models.efficientnet.FusedMBConvConfig, models.efficientnet.MBConvConfig
    stages = [
        fused(1, 3, 1, 24, 24, 1),
        fused(4, 3, 2, 24, 32, 2),
        plain(4, 3, 2, 32, 48, 2),
        plain(6, 3, 1, 48, 64, 2),
    ]
    return models.efficientnet.EfficientNet(stages, dropout=0.2, num_classes=CLASSES, last_channel=256)


def _swin(version: int) -> Callable[[Any], nn.Module]:
    def make(models: Any) -> nn.Module:
        parts = models.swin_transformer
        later = {"block": parts.SwinTransformerBlockV2, "downsample_layer": parts.PatchMergingV2}
        return models.SwinTransformer(
            patch_size=[4, 4],
            embed_dim=16,
            depths=[2, 2],
            num_heads=[2, 4],
            window_size=[4, 4],
            num_classes=CLASSES,
            **(later if version == 2 else {}),
        )

    return make


def _maxvit(models: Any) -> nn.Module:
    return models.MaxVit(
        input_size=(64, 64),
        stem_channels=16,
        partition_size=4,
        block_channels=[16, 32],
        block_layers=[1, 2],
        head_dim=8,
        stochastic_depth_prob=0.2,
        num_classes=CLASSES,
    )


def _bert(transformers: Any) -> nn.Module:
    small = {"hidden_size": 32, "num_hidden_layers": 3, "num_attention_heads": 4, "intermediate_size": 64}
    config = transformers.BertConfig(
        vocab_size=TOKENS, max_position_embeddings=16, num_labels=CLASSES, initializer_range=0.3, **small
    )
    return transformers.BertForSequenceClassification(config)


def _hugging_face_vit(transformers: Any) -> nn.Module:
    small = {"hidden_size": 32, "num_hidden_layers": 3, "num_attention_heads": 4, "intermediate_size": 64}
    config = transformers.ViTConfig(image_size=32, patch_size=8, num_labels=CLASSES, initializer_range=0.3, **small)
    return transformers.ViTForImageClassification(config)


def _gpt2(transformers: Any) -> nn.Module:
    config = transformers.GPT2Config(
        vocab_size=TOKENS,
        n_positions=16,
        n_embd=32,
        n_layer=3,
        n_head=4,
        initializer_range=0.3,
        bos_token_id=0,
        eos_token_id=0,
        tie_word_embeddings=False,
    )
    return transformers.GPT2LMHeadModel(config)


ENTRIES = [
    vision("alexnet", "AlexNet", "features.6", "relu", "max_pool2d"),
    vision("vgg11_bn", "VGG", "features.11", "relu", "max_pool2d", size=32),
    vision("resnet18", "ResNet", "layer3.0.conv1", "relu", size=32),
    vision("resnet50", "ResNet", "layer3.0", "relu", size=32),
    custom("wide_resnet (small)", "Wide ResNet", "layer3.0.conv2", "relu", make=_wide_resnet, axis=1),
    vision("resnext50_32x4d", "ResNeXt", "layer3.0.conv2", "relu", size=32),
    vision("densenet121", "DenseNet", "features.transition2.conv", "relu"),
    vision("googlenet", "GoogLeNet", "inception4a", "relu", "max_pool2d", init_weights=False),
    vision("inception_v3", "Inception", "Mixed_6a", "relu", "max_pool2d", size=96, init_weights=False),
    vision("squeezenet1_1", "SqueezeNet", "features.7.squeeze", "relu", "max_pool2d"),
    vision("mobilenet_v2", "MobileNet V2", "features.8.conv.0.0", "hardtanh"),  # what nn.ReLU6 calls
    vision("mobilenet_v3_small", "MobileNet V3", "features.6.block.0.0", "hardswish", "hardsigmoid", "relu"),
    vision("mobilenet_v3_large", "MobileNet V3", "features.8.block.1", "hardswish", "hardsigmoid", "relu"),
    vision("shufflenet_v2_x0_5", "ShuffleNet V2", "stage3.1.branch2.0", "relu"),
    vision("mnasnet0_5", "MNASNet", "layers.10.0.layers.0", "relu"),
    vision("efficientnet_b0", "EfficientNet", "features.4.0.block.0.0"),
    custom("efficientnet_v2 (small)", "EfficientNet V2", "features.3.0.block.0.0", make=_efficientnet_v2, axis=1),
    vision("regnet_x_400mf", "RegNet", "trunk_output.block3.block3-0.f.a.0", "relu"),
    vision("regnet_y_400mf", "RegNet", "trunk_output.block3.block3-0.f.a.0", "relu"),
    vision("convnext_tiny", "ConvNeXt", "features.5.0.block.3", size=32, axis=-1, layer_scale=0.5),
    custom("vit (small)", "ViT", "encoder.layers.encoder_layer_0.mlp.0", make=_vit),
    custom("swin (small)", "Swin", "features.1.0.mlp.0", make=_swin(1)),
    custom("swin_v2 (small)", "Swin V2", "features.1.0.mlp.0", make=_swin(2)),
    custom(
        "maxvit (small)", "MaxViT", "blocks.1.layers.0.layers.MBconv.layers.conv_a.0", make=_maxvit, size=64, axis=1
    ),
    hugging_face("bert (tiny)", "BERT", "bert.encoder.layer.0", _bert, sentences, lambda out: out.logits),
    hugging_face("vit (tiny)", "ViT", "vit.layers.0.mlp.fc1", _hugging_face_vit, images(32), lambda out: out.logits),
    hugging_face("gpt2 (tiny)", "GPT-2", "transformer.h.0.mlp.c_fc", _gpt2, sentences, lambda out: out.logits[:, -1]),
    Entry("lstm", "LSTM", "embedding", -1, LSTMClassifier, sentences),
]
