"""torchvision, also where its compiled operators do not match torch's build."""

from __future__ import annotations

import functools
import importlib
from types import ModuleType
from typing import Any

import torch

from geh_explain.errors import GEHRuntimeError

__all__ = ["torchvision"]


@functools.cache
def torchvision(part: str = "") -> ModuleType:
    """Import torchvision, or a part of it such as ``"models"``.

    A torchvision built for CUDA does not load its operators into a CPU build of torch, and then dies at
    import for the lack of two declarations. Making them first leaves everything usable but those two.

    >>> torchvision("models").resnet18().fc.out_features  # doctest: +SKIP
    1000
    """
    name = f"torchvision.{part}".rstrip(".")
    try:
        return importlib.import_module(name)
    except RuntimeError as error:
        if "torchvision::nms" not in str(error):
            raise
        _declare_missing()
        return importlib.import_module(name)
    except ModuleNotFoundError as error:
        if error.name not in ("torchvision", name):
            raise
        raise GEHRuntimeError("torchvision is not installed; pip install 'geh-explain[vision]'.") from error


@functools.cache  # the library lives as long as the process: dropped, it would take its declarations along
def _declare_missing() -> Any:
    library: Any = torch.library.Library("torchvision", "DEF")  # type: ignore[no-untyped-call]
    for name in ("nms", "qnms"):
        library.define(f"{name}(Tensor dets, Tensor scores, float iou_threshold) -> Tensor")
    return library
