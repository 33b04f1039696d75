"""A lock has one owner, says who it is, and is free when its owner ends, however it ends."""

import errno
import json
import os
import subprocess
import sys
import threading
import time

import pytest

import geh_explain as geh
from geh_explain.storage import lock
from geh_explain.storage.lock import FileLock

#: Holds a lock until it is killed, and forks a child that outlives it for a moment if it is asked to.
HOLDING = """
import os, sys, time
from pathlib import Path
from geh_explain.storage.lock import FileLock
with FileLock(Path(sys.argv[1]), "checkpoint='run'"):
    if len(sys.argv) > 2 and os.fork() == 0:
        time.sleep(0.3)
        os._exit(0)
    print("held", flush=True)
    time.sleep(60)
"""


def holder(path, *options):
    """Return a process that holds the lock."""
    process = subprocess.Popen([sys.executable, "-c", HOLDING, str(path), *options], stdout=subprocess.PIPE)
    assert process.stdout.readline() == b"held\n"
    return process


@pytest.mark.timeout(120)
def test_a_lock_is_refused_while_its_owner_lives_and_free_when_it_was_killed(tmp_path, monkeypatch):
    path = tmp_path / "run.lock"
    process = holder(path)
    try:
        monkeypatch.setattr(lock, "WAIT_SECONDS", 0.2)
        words = rf"checkpoint='run' is in use by process {process.pid} on '.*' since .*; wait until it has finished, or"
        with pytest.raises(geh.GEHError, match=words), FileLock(path, "checkpoint='run'"):
            pass
    finally:
        process.kill()
        process.communicate()
    with FileLock(path, "checkpoint='run'"):
        assert json.loads(path.read_text())["pid"] == os.getpid()


@pytest.mark.timeout(120)
@pytest.mark.skipif(not hasattr(os, "fork"), reason="needs fork")
def test_a_lock_waits_for_children_of_a_killed_process(tmp_path):
    path = tmp_path / "run.lock"
    process = holder(path, "fork")
    process.kill()
    process.communicate()
    with FileLock(path, "checkpoint='run'"):
        pass


def test_a_second_thread_waits(tmp_path):
    path, order = tmp_path / "run.lock", []

    def second():
        with FileLock(path, "checkpoint='run'"):
            order.append("second")

    with FileLock(path, "checkpoint='run'"):
        thread = threading.Thread(target=second)
        thread.start()
        time.sleep(0.2)
        order.append("first")
    thread.join()
    assert order == ["first", "second"]


def test_a_link_is_not_followed(tmp_path):
    (tmp_path / "secret").write_text("kept")
    (tmp_path / "run.lock").symlink_to(tmp_path / "secret")
    with pytest.raises(geh.GEHError, match="was not written"), FileLock(tmp_path / "run.lock", "checkpoint"):
        pass
    assert (tmp_path / "secret").read_text() == "kept"


def test_a_file_system_without_locks_is_a_warning(tmp_path, monkeypatch):
    def unsupported(descriptor):
        raise OSError(errno.ENOLCK, "No locks available")

    monkeypatch.setattr(lock, "_lock", unsupported)
    with pytest.warns(geh.GEHWarning, match="its file system has no locks"), FileLock(tmp_path / "run.lock", "run"):
        pass


def test_an_owner_that_cannot_be_read_is_another_process(tmp_path):
    for content in (b"", b"[1]", b"[" * 2000, b"\xff"):
        (tmp_path / "run.lock").write_bytes(content)
        assert lock._read_owner(tmp_path / "run.lock") == "another process"
