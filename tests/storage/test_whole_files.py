"""Files are written whole or not at all: where writing fails, the former file is intact and nothing else is left."""

import errno
import io
import os
import signal
import stat
from contextlib import contextmanager

import matplotlib
import pytest
import torch
from explaining import explain_draws, random_points
from networks import mlp

import geh_explain as geh
from geh_explain import cli
from geh_explain.engines.sums import GroupSums
from geh_explain.inference.jsonl import Store
from geh_explain.run.checkpoint import Checkpoint
from geh_explain.storage import whole
from geh_explain.storage.whole import save_figure, write_whole

matplotlib.use("Agg")


@pytest.fixture(scope="module")
def result():
    return explain_draws(mlp(12, 8, 1, dropout=0.3), random_points(30, 12), groups=2, draws=8)


def make_figure(result):
    return result.plot.heatmap().figure


def run_cli(result, path):
    """Write a page with the command line, of a result that is saved elsewhere."""
    saved = path.parent.with_name("saved.npz")
    if not saved.exists():
        result.save(saved)
    if cli.main(["report", str(saved), "--output", str(path)]):
        raise geh.GEHError("the command failed")


def store_draw(result, path):
    """Write a draw of a checkpoint."""
    checkpoint = Checkpoint(path.parent)
    checkpoint._path = lambda start: path
    checkpoint.store(0, GroupSums.zeros(2, 40), torch.zeros(1, 8))


#: Name of the file, and function of a result and the path, of everything in the package that writes a user's file.
WRITERS = {
    "result": ("result.npz", lambda result, path: result.save(path)),
    "page": ("page.html", lambda result, path: result.report(path)),
    "page of the command line": ("page.html", run_cli),
    "png": ("figure.png", lambda result, path: save_figure(make_figure(result), path)),
    "svg": ("figure.svg", lambda result, path: save_figure(make_figure(result), path)),
    "pdf": ("figure.pdf", lambda result, path: save_figure(make_figure(result), path, dpi=50)),
    "draw of a checkpoint": ("draw.npz", store_draw),
    "record": ("records.jsonl", lambda result, path: Store(path).add({"task": list(range(9999))})),
}


@contextmanager
def file_size_limit(limit):
    """Let writing fail at ``limit`` bytes, as on a full disk: a part of the file is written before."""
    resource = pytest.importorskip("resource")
    before = resource.getrlimit(resource.RLIMIT_FSIZE)
    handler = signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
    resource.setrlimit(resource.RLIMIT_FSIZE, (limit, before[1]))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, before)
        signal.signal(signal.SIGXFSZ, handler)


@pytest.mark.parametrize("writer", WRITERS)
def test_a_write_that_fails_half_way_leaves_the_former_file(writer, result, tmp_path, capsys):
    name, write = WRITERS[writer]
    folder = tmp_path / "folder"
    folder.mkdir()
    path = folder / name
    write(result, path)
    assert path.stat().st_size > 3000
    former = path.read_bytes()
    with file_size_limit(2000 if path.suffix != ".jsonl" else len(former) + 2000), pytest.raises(geh.GEHError):
        write(result, path)
    assert path.read_bytes() == former
    assert [file.name for file in folder.iterdir() if file.suffix != ".lock"] == [name]
    write(result, path)


class FullDisk(io.FileIO):
    """A file on a disk with space for 1,500 bytes."""

    def write(self, data):
        written = super().write(bytes(data)[: max(0, 1500 - self.tell())])
        if written < len(data):
            raise OSError(errno.ENOSPC, "No space left on device")
        return written


def test_the_error_of_a_full_disk_says_what_to_do(result, tmp_path, monkeypatch):
    path = result.save(tmp_path / "result.npz")
    former = path.read_bytes()
    monkeypatch.setattr(whole, "open", FullDisk, raising=False)
    words = r"result\.npz' was not written \(No space left on device\); free some space, or give a path on another disk"
    with pytest.raises(geh.GEHError, match=words) as caught:
        result.save(path)
    assert isinstance(caught.value, RuntimeError)
    assert path.read_bytes() == former
    assert list(tmp_path.iterdir()) == [path]


def test_the_space_for_a_large_file_is_checked_first(tmp_path):
    path = tmp_path / "large.npz"
    path.write_text("former")
    words = r"up to 1,000,000,000,000 MB are needed, and [\d,]+ MB are free\); free some space"
    with pytest.raises(geh.GEHError, match=words), write_whole(path, expected_bytes=10**18):
        pytest.fail("began to write")
    assert path.read_text() == "former"


def test_an_interruption_leaves_the_former_file(tmp_path):
    path = tmp_path / "file"
    path.write_text("former")

    def interrupted(file):
        file.write(b"new")
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt), write_whole(path) as file:
        interrupted(file)
    assert path.read_text() == "former"
    assert list(tmp_path.iterdir()) == [path]


def test_a_link_stays_and_its_file_is_replaced_with_the_same_permissions(tmp_path):
    (tmp_path / "folder").mkdir()
    path, link = tmp_path / "folder" / "file", tmp_path / "link"
    path.write_text("former")
    path.chmod(0o640)
    link.symlink_to(path)
    with write_whole(link) as file:
        file.write(b"new")
    assert link.is_symlink()
    assert path.read_text() == "new"
    assert stat.S_IMODE(path.stat().st_mode) == 0o640
    assert len(list(tmp_path.iterdir())) == 2


def test_a_new_file_has_the_permissions_of_other_new_files(tmp_path):
    (tmp_path / "usual").write_text("")
    with write_whole(tmp_path / "file") as file:
        file.write(b"new")
    assert (tmp_path / "file").stat().st_mode == (tmp_path / "usual").stat().st_mode


def test_what_is_no_file_is_refused(tmp_path, result):
    (tmp_path / "folder.npz").mkdir()
    for path, words in (
        (tmp_path / "folder.npz", "is a folder or a device"),
        (tmp_path / "missing" / "result.npz", "there is no folder"),
        ("/dev/null", "is a folder or a device"),
    ):
        with pytest.raises(geh.GEHError, match=words), write_whole(path):
            pytest.fail("opened")
    with pytest.raises(geh.GEHError, match=r"cannot be written \(File name too long\); give another file"):
        result.save(tmp_path / ("x" * 300))


@pytest.mark.skipif(not hasattr(os, "geteuid") or os.geteuid() == 0, reason="root may write everywhere")
def test_a_read_only_file_or_folder_is_refused(tmp_path):
    path = tmp_path / "file"
    path.write_text("former")
    path.chmod(0o444)
    with pytest.raises(geh.GEHError, match="the file is read-only"), write_whole(path):
        pytest.fail("opened")
    tmp_path.chmod(0o555)
    with pytest.raises(geh.GEHError, match="give a path that you may write to"), write_whole(tmp_path / "other"):
        pytest.fail("opened")
    tmp_path.chmod(0o755)


def test_files_of_the_package_are_written_by_one_function():
    """No other module opens a file for writing, except archives, the store of records, which appends, and the lock."""
    package = whole.Path(geh.__file__).parent
    writing = ("savefig(", "write_text(", "write_bytes(", "np.save", '"wb"', '"w"', "os.replace", "to_csv(")
    allowed = {"storage/whole.py", "storage/archives.py"}
    for path in package.rglob("*.py"):
        lines = [line for line in path.read_text().splitlines() if ">>>" not in line and "def " not in line]
        found = [line for line in lines if any(word in line for word in writing)]
        inside = [line for line in found if "(file" in line or "``" in line]
        if path.relative_to(package).as_posix() not in allowed:
            assert found == inside, path
