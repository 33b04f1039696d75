"""Files made by an enemy: each is a result that works or an error in words, and nothing in them is ever executed."""

import io
import json
import os
import pickle
import random
import re
import struct
import subprocess
import sys
import warnings
import zipfile
import zlib
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import Any

import matplotlib

matplotlib.use("Agg")

import numpy as np
import pytest
import torch
from torch import nn

import geh_explain as geh

FILES, SEED = 10_000, 20
#: A page takes longer than all else that is looked at, and is written for one file in so many.
PAGES = 53
GIGABYTE = 2**30
MARKUP = ["</script><script>alert(1)</script>", "<img src=x onerror=alert(2)>", "größe \U0001f4d0\n\"'\\"]


pytestmark = pytest.mark.timeout(1200)


# Files as they should be


def intact(folder: Path) -> dict[str, bytes]:
    """Save results of every kind: with all draws, with their moments, with standard errors, with one draw."""
    torch.manual_seed(0)
    net = nn.Sequential(nn.Linear(3, 8), nn.Tanh(), nn.Dropout(0.3), nn.Linear(8, 1)).double()
    x = torch.randn(20, 3, dtype=torch.double)

    def explain(engine="auto", posterior=None, groups=2, **options):
        explainer = geh.GEHExplainer(net, posterior=posterior, engine=engine)
        return explainer.explain(x, groups=groups, draws=6, progress=False, **options)

    results = {
        "draws": explain(),
        "moments": explain(memory=1e-6),
        "noise": explain(engine="stein"),
        "markup": explain(names=MARKUP, groups=["<b>", "&"] * 10),
        "one draw": explain(posterior=geh.posterior.PointEstimate()),
    }
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


# Files as they should not be


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
NAMES = ["../evil.npy", "/tmp/evil.npy", "a/../../evil", "..\\evil.npy", "signed", "about", "x" * 3000, "é", "folder/"]


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


# What comes of them


def look_at_the_table(result: geh.Interactions, folder: Path) -> None:
    with np.errstate(all="ignore"):
        table = result.table()
    assert len(table) == len(result.names) * (len(result.names) - 1) // 2


def look_at_everything(result: geh.Interactions, folder: Path) -> None:
    for measure in ("geh", "aeh", "eah"):
        assert np.isfinite(result.table(measure)["mean"]).all()
    if result.geh.count > 1:
        result.table(rule="sign", fdr=0.1)
    if result.has_main:
        result.main.table()
    assert str(result).encode()
    assert result._repr_html_().encode()
    result.regions(0, 1)
    again = geh.Interactions.load(result.save(folder / "again.npz"))
    assert (again.names, again.group_names) == (result.names, result.group_names)
    assert again.table().equals(result.table())


def look_at_the_page(result: geh.Interactions, folder: Path) -> None:
    assert result.report(folder / "page.html").stat().st_size


class Verdicts:
    """What came of many files: how often each attack was refused or got through, and what went wrong then."""

    def __init__(self) -> None:
        self.refused: Counter[str] = Counter()
        self.read: Counter[str] = Counter()
        self.wrong: dict[str, Counter[tuple[str, str]]] = {"load": Counter()}

    def judge(self, path: Path, attack: str, looks: list[Callable[[geh.Interactions, Path], None]]) -> None:
        try:
            result = geh.Interactions.load(path)
        except geh.GEHError:
            self.refused[attack] += 1
            return
        except Exception as error:
            self.wrong["load"][attack, repr(error)[:200]] += 1
            return
        self.read[attack] += 1
        for look in looks:
            try:
                look(result, path.parent)
            except Exception as error:
                self.wrong.setdefault(look.__name__, Counter())[attack, repr(error)[:200]] += 1


def fuzz(folder: Path, files: int) -> Verdicts:
    """Read ``files`` forged files, and return what came of them; nothing is written but what is looked at."""
    rng, trace, verdicts = random.Random(SEED), folder / "executed", Verdicts()
    originals = list(intact(folder).values())
    path = folder / "forged.npz"
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", geh.GEHWarning)
        for number in range(files):
            attack = ATTACKS[number % len(ATTACKS)]
            path.write_bytes(attack(rng, rng.choice(originals), trace))
            looks = [look_at_the_table, look_at_everything, look_at_the_page]
            verdicts.judge(path, attack.__name__, looks if number % PAGES == 0 else looks[:2])
    written = {file.name for file in folder.iterdir()} - {f"{kind}.npz" for kind in intact(folder)}
    assert written <= {"forged.npz", "again.npz", "page.html"}
    return verdicts


@pytest.fixture(scope="module")
def verdicts(tmp_path_factory: pytest.TempPathFactory) -> Verdicts:
    return fuzz(tmp_path_factory.mktemp("fuzz"), FILES)


def test_a_forged_file_is_read_or_refused_in_words(verdicts: Verdicts) -> None:
    assert not verdicts.wrong["load"]
    assert sum(verdicts.read.values()) + sum(verdicts.refused.values()) == FILES


def test_attacks_get_as_far_as_the_checks(verdicts: Verdicts) -> None:
    assert set(verdicts.refused) | set(verdicts.read) == {attack.__name__ for attack in ATTACKS}
    harmless = {"with_its_members_in_another_order", "with_more_members"}
    assert harmless <= set(verdicts.read)
    assert set(verdicts.refused) >= {attack.__name__ for attack in ATTACKS} - harmless


def test_what_is_read_has_a_table(verdicts: Verdicts) -> None:
    assert not verdicts.wrong.get("look_at_the_table")


def test_everything_works_of_what_is_read(verdicts: Verdicts) -> None:
    assert not verdicts.wrong.get("look_at_everything")


def test_what_is_read_has_a_page(verdicts: Verdicts) -> None:
    assert not verdicts.wrong.get("look_at_the_page")


# Files that are larger than they look


def inflating(start: bytes, size: int, filler: bytes = b"\x00") -> tuple[bytes, int, int]:
    """Return a deflated stream of ``start`` and ``size`` times ``filler``, its length, and its checksum."""
    piece = filler * 2**26
    packer = zlib.compressobj(1, zlib.DEFLATED, -15)
    first = packer.compress(start) + packer.flush(zlib.Z_FULL_FLUSH)
    again = packer.compress(piece) + packer.flush(zlib.Z_FULL_FLUSH)
    checksum = zlib.crc32(start)
    for _ in range(size // len(piece)):
        checksum = zlib.crc32(piece, checksum)
    times = size // len(piece)
    return first + again * times + packer.flush(), len(start) + times * len(piece), checksum


def with_a_member_that_inflates(content: bytes, name: str, stream: bytes, length: int, checksum: int) -> bytes:
    """Put a deflated stream in the place of a member, with a directory that tells the truth about it."""
    parts = members(content)
    parts.pop(name, None)
    forged = io.BytesIO()
    with zipfile.ZipFile(forged, "w") as archive:
        archive.writestr(name, b"")
        for other, value in parts.items():
            archive.writestr(other, value)
    plain = forged.getvalue()
    sizes = struct.pack("<III", checksum, len(stream), length)
    local, body = plain[:30], plain[30 + len(name) :]
    body = body[body.index(b"PK\x03\x04") :]
    local = local[:8] + struct.pack("<H", 8) + local[10:14] + sizes + local[26:]
    moved = len(stream) + (30 + len(name)) - (len(plain) - len(body))
    start = body.index(b"PK\x01\x02")
    directory = bytearray(body[start:])
    for number, match in enumerate(re.finditer(b"PK\x01\x02", bytes(directory))):
        entry = match.start()
        if number == 0:
            directory[entry + 10 : entry + 12] = struct.pack("<H", 8)
            directory[entry + 16 : entry + 28] = sizes
        else:
            (offset,) = struct.unpack_from("<I", directory, entry + 42)
            struct.pack_into("<I", directory, entry + 42, offset + moved)
    end = directory.rindex(b"PK\x05\x06")
    (offset,) = struct.unpack_from("<I", directory, end + 16)
    struct.pack_into("<I", directory, end + 16, offset + moved)
    return local + name.encode() + stream + body[:start] + bytes(directory)


#: What in a file unpacks to so many bytes: a member, how it begins, and what it goes on with.
INFLATING: dict[str, Callable[[int], tuple[str, bytes, bytes]]] = {
    "scores": lambda size: ("signed.npy", promise((size // 8,)), b"\x00"),
    "scores of the right kind": lambda size: ("signed.npy", promise((size // 48, 2, 3)), b"\x00"),
    "standard errors": lambda size: ("noise.npy", promise((size // 8,)), b"\x00"),
    "labels": lambda size: ("labels.npy", promise((size // 8,), "<i8"), b"\x00"),
    "words": lambda size: ("about.npy", promise((size,), "|u1"), b" "),
    "a header": lambda size: ("signed.npy", raw_npy(b"", version=2, length=size), b" "),
}


def bomb(content: bytes, kind: str, size: int) -> bytes:
    """Return a small file of which a part unpacks to ``size`` bytes."""
    name, start, filler = INFLATING[kind](size)
    return with_a_member_that_inflates(content, name, *inflating(start, size, filler))


#: Reads a file, and prints what came of it and by how many bytes the memory in use had grown at its peak.
READING = """
import json, resource, sys
import geh_explain as geh

resource.setrlimit(resource.RLIMIT_AS, (8 * 2**30, 8 * 2**30))
peak = lambda: resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024
before = peak()
try:
    geh.Interactions.load(sys.argv[1]).table()
    found = "read"
except geh.GEHError:
    found = "refused"
except BaseException as error:
    found = repr(error)
print(json.dumps([found, peak() - before]))
"""


def outcome(path: Path) -> tuple[str, int]:
    """Read a file in a process of its own; return what came of it, and how much memory that took."""
    here = {**os.environ, "PYTHONPATH": os.pathsep.join(filter(None, [str(Path(geh.__file__).parents[1]), *sys.path]))}
    command = [sys.executable, "-W", "ignore", "-c", READING, str(path)]
    done = subprocess.run(command, env=here, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    found, memory = json.loads(done.stdout)
    return found, memory


@pytest.fixture(scope="module")
def content(tmp_path_factory: pytest.TempPathFactory) -> bytes:
    return intact(tmp_path_factory.mktemp("intact"))["draws"]


@pytest.mark.parametrize("kind", INFLATING)
def test_a_small_file_that_unpacks_to_gigabytes_is_refused_before_they_fill_the_memory(kind, content, tmp_path):
    path = tmp_path / "bomb.npz"
    path.write_bytes(bomb(content, kind, 3 * GIGABYTE))
    assert path.stat().st_size < 2**24
    found, memory = outcome(path)
    assert (found, memory < GIGABYTE) == ("refused", True)


def test_the_forged_archive_is_one_that_zip_can_read(content, tmp_path):
    stream = inflating(promise((2**23,), "<i8"), 2**26)
    forged = with_a_member_that_inflates(content, "labels.npy", *stream)
    with zipfile.ZipFile(io.BytesIO(forged)) as archive:
        assert archive.testzip() is None
        assert set(archive.namelist()) == set(members(content))
    assert len(read_npy(members(forged)["labels.npy"])) == 2**23
