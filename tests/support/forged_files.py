"""Forged files of results: changed bytes, members, numbers and settings."""

import io
import json
import pickle
import random
import warnings
import zipfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import matplotlib
import numpy as np
from explaining import explain_draws, explain_point, random_points
from networks import mlp
from synthetic_results import evidence_result

matplotlib.use("Agg")


#: Number of forged files in the long suite, and the seed of all attacks.
FILES = 10_000
SEED = 20


#: A page is written for one file in this many, as it takes longer than everything else.
PAGES = 53


GIGABYTE = 2**30


MARKUP = ["</script><script>alert(1)</script>", "<img src=x onerror=alert(2)>", "größe \U0001f4d0\n\"'\\"]


def intact(folder: Path) -> dict[str, bytes]:
    """Save results of every kind: draws, moments, standard errors, evidence, one draw, some pairs."""
    net, x = mlp(3, 8, 1, dropout=0.3), random_points(20, 3)

    results = {
        "draws": explain_draws(net, x, groups=2, draws=6),
        "moments": explain_draws(net, x, groups=2, draws=6, memory=1e-6),
        "noise": explain_draws(net, x, groups=2, draws=6, engine="stein"),
        "markup": explain_draws(net, x, groups=["<b>", "&"] * 10, draws=6, names=MARKUP),
        "one draw": explain_point(net, x, groups=2),
        "some pairs": explain_draws(net, x, groups=2, draws=6, unit=1),
    }
    results["evidence"] = evidence_result(results["draws"], untested=1)
    assert not results["moments"].settings["draws_kept"]
    assert results["noise"].noise is not None
    return {kind: result.save(folder / f"{kind}.npz").read_bytes() for kind, result in results.items()}


def members(content: bytes) -> dict[str, bytes]:
    with zipfile.ZipFile(io.BytesIO(content)) as archive:
        return {name: archive.read(name) for name in archive.namelist()}


def packed(parts: Any, compression: int = zipfile.ZIP_STORED, comment: bytes = b"") -> bytes:
    """Put members into one file; a list of them may name one twice."""
    stream = io.BytesIO()
    with warnings.catch_warnings(), zipfile.ZipFile(stream, "w", compression) as archive:
        warnings.simplefilter("ignore")  # a name twice
        archive.comment = comment
        for name, content in parts.items() if isinstance(parts, dict) else parts:
            archive.writestr(zipfile.ZipInfo(name), content, compression)
    return stream.getvalue()


def as_npy(array: Any) -> bytes:
    stream = io.BytesIO()
    np.lib.format.write_array(stream, np.asarray(array))
    return stream.getvalue()


def read_npy(content: bytes) -> Any:
    return np.lib.format.read_array(io.BytesIO(content))


def raw_npy(header: str | bytes, data: bytes = b"", version: int = 1, length: int | None = None) -> bytes:
    """An array as bytes, whose header may be anything, and may claim any length."""
    header = header.encode() if isinstance(header, str) else header
    claimed = (len(header) if length is None else length).to_bytes(2 if version == 1 else 4, "little")
    return b"\x93NUMPY" + bytes([version, 0]) + claimed + header + data


def promise(shape: Any, descr: Any = "<f8", fortran: Any = False, data: bytes = b"") -> bytes:
    """An array that claims this shape and type, whatever its data are."""
    return raw_npy(repr({"descr": descr, "fortran_order": fortran, "shape": shape}), data)


def words_of(content: bytes) -> dict[str, Any]:
    return json.loads(read_npy(members(content)["about.npy"]).tobytes())


def with_words(content: bytes, text: str) -> bytes:
    return packed(members(content) | {"about.npy": as_npy(np.frombuffer(text.encode(), dtype=np.uint8))})


class Bomb:
    """Leaves a trace when it is unpickled."""

    def __init__(self, trace: Path) -> None:
        self.trace = trace

    def __reduce__(self) -> tuple[Callable[..., Any], tuple[Any, ...]]:
        return Path.touch, (self.trace,)


def nested(value: Any, levels: int) -> Any:
    for _ in range(levels):
        value = [value]
    return value


SHAPES = [
    *((10**12,), (10**30,), (2**63,), (2**64, 2), (-1,), (-3, 2, 3), (3, 2, -3), (0,), (), (0, 10**15), (10**15, 2, 0)),
    *((1.5,), ("x",), "x", None, 3, (True, 2, 3), ((1,),), (6,) * 33, (1,) * 70, [6, 2, 3], (6, 2, 3)),
]


TYPES = [
    *("|O", "O", "<f4", ">f8", "<f2", "<c16", "<i8", "|u1", "|b1", "<U3", "|S8", "|V8", "<M8[s]", "<m8[7D]"),
    *("nonsense", "", "(2,)<f8", "<f8,<f8", [("a", "<f8")], [("a", "|O")], [], {"a": 1}, None, 7, ("<f8", "|O")),
]


HEADERS = [
    *("", "\n", "{}", "[]", "1", "None", "__import__('os')", "'\\d'", "\x00" * 64, "{'descr': '<f8'}", "{" * 3000),
    *("(" * 9000, "[" * 4000 + "]" * 4000, "-" * 9000 + "1", "1+" * 4000 + "1", "~" * 9900 + "1", "9" * 9000),
    *("{'descr': '<f8', 'fortran_order': False, 'shape': (6, 2, 3), 'more': 1}", "'" + "x" * 60_000 + "'", "é"),
    *("{'descr': '<f8', 'fortran_order': 7, 'shape': (6, 2, 3)}", "{'descr': '<f8', 'fortran_order': False, 'shape':"),
]


VALUES = [
    *(None, True, False, 0, 1, -1, -5, 10**30, 0.5, float("nan"), float("inf"), "", "a", "\ud800", "\x00", [], {}),
    *([None], {"a": 1}, [[]], nested(1, 40), "x" * 10_000, ["a", "b"], ["a", "b", "c"], [1, 2, 3], ["a"] * 3, "<b>"),
]


NUMBERS = [np.nan, np.inf, -np.inf, -1.0, 0.0, -0.0, 1.7e308, -1.7e308, 1e200, 5e-324, 2.0**53]


NAMES = ["../evil.npy", "/evil.npy", "a/../../evil", "..\\evil.npy", "signed", "about", "x" * 3000, "é", "folder/"]


def cut_short(rng: random.Random, content: bytes, trace: Path) -> bytes:
    return content[: rng.randrange(len(content))]


def with_bytes_flipped(rng: random.Random, content: bytes, trace: Path) -> bytes:
    flipped = bytearray(content)
    for _ in range(rng.choice([1, 1, 2, 8, 64])):
        flipped[rng.randrange(len(flipped))] ^= 1 << rng.randrange(8)
    return bytes(flipped)


def with_a_directory_that_lies(rng: random.Random, content: bytes, trace: Path) -> bytes:
    flipped = bytearray(content)
    start = content.index(b"PK\x01\x02")
    for _ in range(rng.choice([1, 2, 4])):
        flipped[rng.randrange(start, len(flipped))] = rng.choice([0, 1, 8, 0x7F, 0xFF, rng.randrange(256)])
    return bytes(flipped)


def with_a_piece_moved(rng: random.Random, content: bytes, trace: Path) -> bytes:
    first, second, third = sorted(rng.randrange(len(content)) for _ in range(3))
    return rng.choice(
        [
            content[:first] + content[second:],
            content[:second] + content[first:],
            content[:first] + content[second:third] + content[first:second] + content[third:],
            content[:first] + rng.randbytes(rng.choice([1, 40])) + content[first:],
            rng.randbytes(9) + content,
            content + rng.randbytes(9),
            content + content,
        ]
    )


def with_its_members_in_another_order(rng: random.Random, content: bytes, trace: Path) -> bytes:
    parts = list(members(content).items())
    rng.shuffle(parts)
    return packed(parts, rng.choice([zipfile.ZIP_DEFLATED, zipfile.ZIP_BZIP2, zipfile.ZIP_LZMA]), rng.randbytes(50))


def with_a_member_flipped(rng: random.Random, content: bytes, trace: Path) -> bytes:
    parts = members(content)
    name = rng.choice(list(parts))
    stop = len(parts[name]) if rng.random() < 0.5 else min(130, len(parts[name]))
    flipped = bytearray(parts[name])
    for _ in range(rng.choice([1, 1, 2, 8])):
        flipped[rng.randrange(stop)] = rng.randrange(256)
    return packed(parts | {name: bytes(flipped)})


def with_a_member_cut_short(rng: random.Random, content: bytes, trace: Path) -> bytes:
    parts = members(content)
    name = rng.choice(list(parts))
    return packed(parts | {name: parts[name][: rng.randrange(len(parts[name]))]})


def without_a_member(rng: random.Random, content: bytes, trace: Path) -> bytes:
    parts = members(content)
    for name in rng.sample(list(parts), rng.choice([1, 1, 2])):
        del parts[name]
    return packed(parts)


def with_members_exchanged(rng: random.Random, content: bytes, trace: Path) -> bytes:
    parts = members(content)
    one, other = rng.sample(list(parts), 2)
    return packed(parts | {one: parts[other], other: parts[one]})


def with_a_member_twice(rng: random.Random, content: bytes, trace: Path) -> bytes:
    parts = members(content)
    name = rng.choice(list(parts))
    again = rng.choice([parts[name], b"", parts["about.npy"], as_npy(np.zeros(3))])
    return packed([*parts.items(), (name, again)])


def with_more_members(rng: random.Random, content: bytes, trace: Path) -> bytes:
    inner = rng.choice([content, b"", pickle.dumps(Bomb(trace)), as_npy(np.array([Bomb(trace)], dtype=object))])
    return packed([*members(content).items(), (rng.choice(NAMES), inner)])


def with_a_zip_for_a_member(rng: random.Random, content: bytes, trace: Path) -> bytes:
    parts = members(content)
    return packed(parts | {rng.choice(list(parts)): rng.choice([content, packed({"about.npy": content})])})


def with_a_pickle_for_a_member(rng: random.Random, content: bytes, trace: Path) -> bytes:
    parts, bomb = members(content), Bomb(trace)
    name = rng.choice(list(parts))
    evil = [
        pickle.dumps(bomb),
        as_npy(np.array([bomb], dtype=object)),
        as_npy(np.array(bomb, dtype=object)),
        as_npy(np.array([(1.0, bomb)], dtype=[("a", "<f8"), ("b", "O")])),
        promise((1,), "|O", data=pickle.dumps(bomb)),
        promise((1,), "<f8", data=pickle.dumps(bomb)),
    ]
    return packed(parts | {name: rng.choice(evil)})


def with_another_kind_of_numbers(rng: random.Random, content: bytes, trace: Path) -> bytes:
    parts = members(content)
    name = rng.choice(list(parts))
    array = read_npy(parts[name])
    kind = rng.choice(["f2", "f4", ">f8", "i8", "i4", "u8", "c16", "?", "U5", "S3", "M8[s]", "V4"])
    with np.errstate(all="ignore"), warnings.catch_warnings():
        warnings.simplefilter("ignore")
        return packed(parts | {name: as_npy(array.astype(kind))})


def with_another_shape(rng: random.Random, content: bytes, trace: Path) -> bytes:
    parts = members(content)
    name = rng.choice(list(parts))
    array = read_npy(parts[name])
    changed = [array.ravel(), array[None], array.T, np.asfortranarray(array), array[..., None], array.reshape(-1, 1)]
    changed += [array[:0], array[1:], array[..., :-1], np.repeat(array, 2, axis=0)] if array.ndim else []
    return packed(parts | {name: as_npy(rng.choice(changed))})


def with_an_odd_number(rng: random.Random, content: bytes, trace: Path) -> bytes:
    parts = members(content)
    name = rng.choice([name for name in parts if name != "about.npy"])
    array = read_npy(parts[name]).copy()
    if array.dtype.kind == "f":
        array.flat[rng.randrange(array.size)] = rng.choice(NUMBERS)
    else:
        array.flat[rng.randrange(array.size)] = rng.choice([-1, 0, 1, 2, 5, 2**62, -(2**63)])
    return packed(parts | {name: as_npy(array)})


def with_an_array_that_lies(rng: random.Random, content: bytes, trace: Path) -> bytes:
    parts = members(content)
    name = rng.choice(list(parts))
    data = parts[name][-rng.choice([0, 8, 288, 500]) :]
    evil = [
        promise(rng.choice(SHAPES), data=data),
        promise((6, 2, 3), rng.choice(TYPES), data=data),
        promise(rng.choice(SHAPES), rng.choice(TYPES), rng.choice([True, False, 1, None, "x"]), data),
        raw_npy(rng.choice(HEADERS)[:65_535], data),
        raw_npy(rng.choice(HEADERS), data, version=rng.choice([2, 3])),
        raw_npy(rng.choice(HEADERS)[:99], data, version=2, length=rng.choice([2**32 - 1, 2**31, 0, 5])),
        raw_npy(rng.choice(HEADERS)[:99], data, version=rng.choice([0, 4, 9, 255])),
    ]
    return packed(parts | {name: rng.choice(evil)})


def with_odd_words(rng: random.Random, content: bytes, trace: Path) -> bytes:
    words = words_of(content)
    place = words["settings"] if rng.random() < 0.5 else words
    for key in rng.sample(list(place), rng.choice([1, 1, 2])):
        if rng.random() < 0.2:
            del place[key]
        else:
            place[key] = rng.choice(VALUES)
    return with_words(content, json.dumps(words))


def with_odd_names(rng: random.Random, content: bytes, trace: Path) -> bytes:
    words = words_of(content)
    names = words[rng.choice(["names", "group_names"])]
    names[rng.randrange(len(names))] = rng.choice([*VALUES, *names])
    return with_words(content, json.dumps(words))


def with_words_that_are_no_json(rng: random.Random, content: bytes, trace: Path) -> bytes:
    text = json.dumps(words_of(content))
    place = rng.randrange(len(text))
    deep = rng.choice([100, 900, 10_000, 100_000])
    return with_words(
        content,
        rng.choice(
            [
                *(
                    text[:place],
                    text[place:],
                    text[:place] + rng.choice('{}[]",:0\\') + text[place:],
                    "",
                    "null",
                    "NaN",
                ),
                *("[" * deep, "[" * deep + "]" * deep, '{"a":' * deep + "1" + "}" * deep, text + text, "\ufeff" + text),
                text[:-1] + f', "settings": {{"a": {"[" * deep + "]" * deep}}}}}',
                text[:-1] + f', "settings": {{"seed": {"9" * rng.choice([400, 4000, 5000, 100_000])}}}}}',
                text[:-1] + ', "names": ["a", "b", "c"], "names": 3}',
                text[:-1] + ', "settings": {"seed": 1e999, "draws": NaN, "target": -Infinity}}',
            ]
        ),
    )


def with_too_few_units(rng: random.Random, content: bytes, trace: Path) -> bytes:
    words, units, draws = words_of(content), rng.choice([0, 1]), rng.choice([1, 6, 10**15])
    words["names"] = words["names"][:units]
    parts = {"signed.npy": promise((draws, 2, 0)), "absolute.npy": promise((draws, 0))}
    labels = {"labels.npy": members(content)["labels.npy"]}
    return with_words(packed(members(content) | parts | labels), json.dumps(words))


def of_something_else(rng: random.Random, content: bytes, trace: Path) -> bytes:
    text = as_npy(np.frombuffer(json.dumps(words_of(content)).encode(), dtype=np.uint8))
    return rng.choice(
        [
            *(
                b"",
                b"PK",
                b"PK\x03\x04",
                b"PK\x05\x06" + bytes(18),
                b"\x93NUMPY",
                bytes(500),
                rng.randbytes(300),
                b"{}",
            ),
            *(pickle.dumps(Bomb(trace), protocol) for protocol in (0, 2, 4)),
            *(as_npy(np.array([Bomb(trace)], dtype=object)), promise((10**12,)), promise((-1,)), text),
            *(packed({}), packed({"about.npy": text}), packed({"a.npz": content})),
        ]
    )


ATTACKS = [
    *(cut_short, with_bytes_flipped, with_a_directory_that_lies, with_a_piece_moved, with_its_members_in_another_order),
    *(with_a_member_flipped, with_a_member_cut_short, without_a_member, with_members_exchanged, with_a_member_twice),
    *(with_more_members, with_a_zip_for_a_member, with_a_pickle_for_a_member, with_another_kind_of_numbers),
    *(with_another_shape, with_an_odd_number, with_an_array_that_lies, with_odd_words, with_odd_names),
    *(with_words_that_are_no_json, with_too_few_units, of_something_else),
]
