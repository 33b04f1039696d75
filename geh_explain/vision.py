"""Import of torchvision, also where its compiled operators do not match the build of torch."""

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
    """Return torchvision, or a submodule of it such as ``"models"``.

    A torchvision built for CUDA cannot load its operators into a CPU build of torch, and its import then fails because
    two operators are not declared. This function declares them and imports again. Everything works then but these two
    operators, ``nms`` and ``qnms``.

    Parameters
    ----------
    part
        Name of the submodule; empty for torchvision itself.

    Raises
    ------
    GEHRuntimeError
        If torchvision is not installed.

    Examples
    --------
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
        # A module that torchvision itself misses is another problem, with its own message.
        if error.name not in ("torchvision", name):
            raise
        raise GEHRuntimeError("torchvision is not installed; pip install 'geh-explain[vision]'.") from error


# Cached, so that the library lives as long as the process: its declarations are removed with it.
@functools.cache
def _declare_missing() -> Any:
    """Declare the operators nms and qnms without implementations, and return the library that holds them."""
    library: Any = torch.library.Library("torchvision", "DEF")  # type: ignore[no-untyped-call]
    for name in ("nms", "qnms"):
        library.define(f"{name}(Tensor dets, Tensor scores, float iou_threshold) -> Tensor")
    return library
