"""Forged checkpoint folders of ``explain``: changed arrays, archives and identities."""

import io
import json
import os
import shutil
import zipfile

import numpy as np

from geh_explain.run.checkpoint import Checkpoint
from geh_explain.run.stored_draws import _stamp

#: The draw that is forged; the run computes one draw at a time.
NUMBER = 2
FILE = f"draw_{NUMBER:06d}.npz"


def read(folder, name=FILE):
    with np.load(folder / name) as archive:
        return dict(archive)


def stamped(folder, arrays):
    """Return the arrays with the stamp that a run in this folder would give them: the forger knows the package."""
    checkpoint = Checkpoint(folder)
    checkpoint.budget(1)
    parts = {name: part for name, part in arrays.items() if name != "stamp"}
    stamp = _stamp(checkpoint._run, NUMBER, parts)
    return {**parts, "stamp": np.frombuffer(stamp.encode(), dtype=np.uint8)}


def changed(name, change):
    """Return a forgery that replaces the array ``name`` by ``change(array)``, with the right stamp."""

    def forge(folder):
        arrays = read(folder)
        arrays[name] = np.asarray(change(arrays[name]))
        np.savez(folder / FILE, **stamped(folder, arrays))

    return forge


def with_value(name, value):
    """Return a forgery that sets one number of an array."""

    def change(array):
        array = array.copy()
        array.flat[0] = value
        return array

    return changed(name, change)


def without(*names):
    def forge(folder):
        arrays = read(folder)
        np.savez(folder / FILE, **stamped(folder, {name: arrays[name] for name in arrays if name not in names}))

    return forge


def with_arrays(**make):
    """Return a forgery that adds arrays, each a function of those that are there."""

    def forge(folder):
        arrays = read(folder)
        added = {name: np.asarray(function(arrays)) for name, function in make.items()}
        np.savez(folder / FILE, **stamped(folder, {**arrays, **added}))

    return forge


def of_each(change):
    """Return a forgery that changes every array with a dimension of draws."""

    def forge(folder):
        arrays = {name: change(part) if part.ndim > 1 else part for name, part in read(folder).items()}
        np.savez(folder / FILE, **stamped(folder, arrays))

    return forge


def content(make):
    """Return a forgery of the bytes of the file."""
    return lambda folder: (folder / FILE).write_bytes(make((folder / FILE).read_bytes()))


def copied(name, factor=1.0):
    """Return a forgery with the arrays of another draw, whose stamp stays, or with changed numbers."""

    def forge(folder):
        arrays = read(folder, name)
        arrays["signed"] = factor * arrays["signed"]
        np.savez(folder / FILE, **arrays)

    return forge


def bomb(folder):
    """Write a compressed archive of 20 KB that unpacks to 20 MB."""
    np.savez_compressed(folder / FILE, **stamped(folder, {**read(folder), "variance": np.zeros((10**5, 25))}))
    assert (folder / FILE).stat().st_size < 10**5


def lying_header(folder):
    """Write an array whose header promises a terabyte."""
    promised = io.BytesIO()
    np.lib.format.write_array_header_1_0(promised, {"descr": "<f8", "fortran_order": False, "shape": (2**37,)})
    arrays = read(folder)
    with zipfile.ZipFile(folder / FILE, "w") as archive:
        for name, part in arrays.items():
            stream = io.BytesIO()
            np.lib.format.write_array(stream, part)
            archive.writestr(f"{name}.npy", promised.getvalue() if name == "signed" else stream.getvalue())


def pickled(folder):
    arrays = {**read(folder), "signed": np.array([print, "executed"], dtype=object)}
    np.savez(folder / FILE, **arrays)


def instead(make):
    """Return a forgery that puts something else in the place of the file."""

    def forge(folder):
        (folder / FILE).unlink()
        make(folder / FILE)

    return forge


def identity(**entries):
    """Return a forgery of entries of run.json; None removes one."""

    def forge(folder):
        path = folder / "run.json"
        known = json.loads(path.read_text()) | entries
        path.write_text(json.dumps({key: value for key, value in known.items() if value is not None}))

    return forge


def identity_file(make):
    def forge(folder):
        (folder / "run.json").unlink()
        make(folder / "run.json")

    return forge


def of_another_run(folder):
    """Put a draw of a run with another identity there."""
    other = folder.with_name("other")
    shutil.copytree(folder, other)
    identity(seed=5)(other)
    np.savez(folder / FILE, **stamped(other, read(folder)))


ARRAY_NAMES = ("signed", "absolute", "slopes", "squares", "counts", "outputs")

FORGERIES = {
    **{f"NaN in {name}": with_value(name, np.nan) for name in ARRAY_NAMES},
    **{f"infinite {name}": with_value(name, np.inf) for name in ("signed", "absolute", "slopes")},
    **{f"negative {name}": with_value(name, -1.0) for name in ("absolute", "squares", "counts")},
    **{f"no {name}": without(name) for name in (*ARRAY_NAMES, "skipped")},
    "squares without draws": without("squares", "counts"),
    "no draws": of_each(lambda part: part[:0]),
    "two draws": of_each(lambda part: np.concatenate([part, part])),
    "other groups": changed("signed", lambda part: np.concatenate([part, part], axis=1)),
    "other units": changed("slopes", lambda part: part[:, :, 1:]),
    "other pairs": changed("absolute", lambda part: part[:, 1:]),
    "another dimension": changed("signed", lambda part: part[None]),
    "single precision": changed("signed", lambda part: part.astype("f4")),
    "whole numbers": changed("absolute", lambda part: part.astype("i8")),
    "complex numbers": changed("signed", lambda part: part.astype(complex)),
    "too many points": with_value("counts", 1e9),
    "negative number of skipped points": changed("skipped", lambda part: -1),
    "all points skipped": changed("skipped", lambda part: 60),
    "skipped points that are no number": changed("skipped", lambda part: 1.5),
    "several numbers of skipped points": changed("skipped", lambda part: [0, 0]),
    "an unknown array": with_arrays(more=lambda arrays: np.zeros(3)),
    "a variance that other draws do not have": with_arrays(variance=lambda arrays: np.abs(arrays["signed"])),
    "another output": with_value("outputs", 0.5),
    "outputs of fewer points": changed("outputs", lambda part: part[:, 1:]),
    "numbers that were changed": copied(FILE, factor=2.0),
    "another draw": copied("draw_000001.npz"),
    "another run": of_another_run,
    "a decompression bomb": bomb,
    "a header that lies": lying_header,
    "a pickle": pickled,
    "half a file": content(lambda old: old[: len(old) // 2]),
    "an empty file": content(lambda old: b""),
    "text": content(lambda old: b"draws"),
    "a folder": instead(lambda path: path.mkdir()),
    "a link to nowhere": instead(lambda path: path.symlink_to("nowhere")),
    "a pipe": instead(os.mkfifo if hasattr(os, "mkfifo") else lambda path: path.mkdir()),
    "a negative budget": identity(budget=-1),
    "no budget": identity(budget=None),
    "a huge budget": identity(budget=10**30),
    "a budget that is text": identity(budget="1"),
    "a budget that is true": identity(budget=True),
    "another budget": identity(budget=10**9),
    "another seed": identity(seed=1),
    "a seed that is false": identity(seed=False),
    "an identity without a model": identity(model=None),
    "an identity that is a list": identity_file(lambda path: path.write_text("[1]")),
    "an endless identity": identity_file(lambda path: path.write_text(" " * 2**21)),
    "an identity that is a device": identity_file(lambda path: path.symlink_to("/dev/zero")),
    "an identity that is a folder": identity_file(lambda path: path.mkdir()),
    "an identity that is not text": identity_file(lambda path: path.write_bytes(b"\xff\xfe{")),
}
