"""Loading of forged files: whether each is refused, or works as a result."""

import io
import json
import os
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

import numpy as np
from forged_files import ATTACKS, PAGES, SEED, intact, members, promise, raw_npy

import geh_explain as geh


def read_table(result: geh.Interactions, folder: Path) -> None:
    with np.errstate(all="ignore"):
        table = result.table()
    assert len(table) == len(result.pairs)


def use_everything(result: geh.Interactions, folder: Path) -> None:
    for measure in ("geh", "aeh", "eah"):
        assert np.isfinite(result.table(measure)["mean"]).all()
    for rule in ("sign", "interval"):
        result.table(rule=rule, fdr=0.1)
    if result.has_main:
        result.main.table()
    assert str(result).encode()
    assert result._repr_html_().encode()
    result.regions(int(result.pairs.first[0]), int(result.pairs.second[0]))
    again = geh.Interactions.load(result.save(folder / "again.npz"))
    assert (again.names, again.group_names) == (result.names, result.group_names)
    assert again.table().equals(result.table())


def write_page(result: geh.Interactions, folder: Path) -> None:
    assert result.report(folder / "page.html").stat().st_size


class Verdicts:
    """What came of many files: how often each attack was refused or got through, and what went wrong then."""

    def __init__(self) -> None:
        self.refused: Counter[str] = Counter()
        self.read: Counter[str] = Counter()
        self.wrong: dict[str, Counter[tuple[str, str]]] = {"load": Counter()}

    def judge(self, path: Path, attack: str, uses: list[Callable[[geh.Interactions, Path], None]]) -> None:
        try:
            result = geh.Interactions.load(path)
        except geh.GEHError:
            self.refused[attack] += 1
            return
        except Exception as error:
            self.wrong["load"][attack, repr(error)[:200]] += 1
            return
        self.read[attack] += 1
        for use in uses:
            try:
                use(result, path.parent)
            except Exception as error:
                self.wrong.setdefault(use.__name__, Counter())[attack, repr(error)[:200]] += 1


def fuzz(folder: Path, files: int) -> Verdicts:
    """Read ``files`` forged files, and return what came of them; nothing is written but the files named below."""
    rng, trace, verdicts = random.Random(SEED), folder / "executed", Verdicts()
    originals = list(intact(folder).values())
    path = folder / "forged.npz"
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", geh.GEHWarning)
        for number in range(files):
            attack = ATTACKS[number % len(ATTACKS)]
            path.write_bytes(attack(rng, rng.choice(originals), trace))
            uses = [read_table, use_everything, write_page]
            verdicts.judge(path, attack.__name__, uses if number % PAGES == 0 else uses[:2])
    written = {file.name for file in folder.iterdir()} - {f"{kind}.npz" for kind in intact(folder)}
    assert written <= {"forged.npz", "again.npz", "page.html"}
    return verdicts


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
import json, sys
import geh_explain as geh

try:
    import resource
except ImportError:  # Windows has no limits, and does not tell the peak
    peak = lambda: 0
else:
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
