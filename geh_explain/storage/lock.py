"""Exclusive use of a folder by one process, with a lock of the operating system.

The lock belongs to an open file, so that the system releases it when its process ends, however it ends: a folder of a
dead process is free at once. The file names the owner, for the message that a second process gets.
"""

from __future__ import annotations

import errno
import json
import os
import socket
import sys
import time
from pathlib import Path

from geh_explain.errors import GEHRuntimeError, warn
from geh_explain.storage.whole import explain_os_error

#: Seconds that a process waits for another one: as long as loaders survive a process that was killed.
WAIT_SECONDS = 10.0
_POLL_SECONDS = 0.05
#: Errors of file systems that have no locks.
_UNSUPPORTED = {errno.ENOLCK, errno.ENOSYS, errno.EINVAL, errno.ENOTSUP, errno.EOPNOTSUPP}
#: Maximum number of bytes of a file that names an owner.
_MAX_OWNER_BYTES = 1000

if sys.platform == "win32":
    import msvcrt

    #: Windows forbids reading of locked bytes, so that a byte behind the owner's name is locked.
    _LOCKED_BYTE = 2**30

    def _lock(descriptor: int) -> None:
        os.lseek(descriptor, _LOCKED_BYTE, os.SEEK_SET)
        msvcrt.locking(descriptor, msvcrt.LK_NBLCK, 1)

    def _unlock(descriptor: int) -> None:
        os.lseek(descriptor, _LOCKED_BYTE, os.SEEK_SET)
        msvcrt.locking(descriptor, msvcrt.LK_UNLCK, 1)
else:
    import fcntl

    def _lock(descriptor: int) -> None:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)

    def _unlock(descriptor: int) -> None:
        # Unlocks for copies of the descriptor in forked processes, too.
        fcntl.flock(descriptor, fcntl.LOCK_UN)


class FileLock:
    """A lock that one process, and one thread of it, holds at a time; a context manager.

    Parameters
    ----------
    path
        The file that is locked. It is created, and stays.
    argument
        The argument and its value that messages name, such as ``checkpoint='run'``.

    Raises
    ------
    GEHRuntimeError
        On entering, if another process holds the lock for ``WAIT_SECONDS``; it names that process.

    Examples
    --------
    >>> import tempfile
    >>> path = Path(tempfile.mkdtemp()) / "run.lock"
    >>> with FileLock(path, "checkpoint='run'"):
    ...     json.loads(path.read_text())["pid"] == os.getpid()
    True
    """

    def __init__(self, path: Path, argument: str) -> None:
        self.path = path
        self._argument = argument
        self._descriptor: int | None = None

    def __enter__(self) -> FileLock:
        flags = os.O_RDWR | os.O_CREAT | getattr(os, "O_NOFOLLOW", 0)
        try:
            descriptor = os.open(self.path, flags, 0o666)
        except OSError as error:
            raise explain_os_error(self.path, error) from error
        try:
            self._wait(descriptor)
            _write_owner(descriptor)
        except BaseException:
            os.close(descriptor)
            raise
        self._descriptor = descriptor
        return self

    def __exit__(self, *error: object) -> None:
        if self._descriptor is not None:
            try:
                _unlock(self._descriptor)
            except OSError:  # a file system without locks
                pass
            finally:
                os.close(self._descriptor)
                self._descriptor = None

    def _wait(self, descriptor: int) -> None:
        """Lock the file, or raise if another process does not release it in time."""
        deadline = time.monotonic() + WAIT_SECONDS
        while True:
            try:
                return _lock(descriptor)
            except OSError as error:
                if error.errno in _UNSUPPORTED:
                    warn(
                        f"{self._argument}: its file system has no locks ({error.strerror}); make sure that no other "
                        "process uses the folder."
                    )
                    return None
            if time.monotonic() > deadline:
                raise GEHRuntimeError(
                    f"{self._argument} is in use by {_read_owner(self.path)}; wait until it has finished, or give "
                    "another folder."
                )
            time.sleep(_POLL_SECONDS)


def _write_owner(descriptor: int) -> None:
    """Write host, process and time to a file, for the messages of other processes."""
    started = time.strftime("%Y-%m-%d %H:%M:%S")
    owner = json.dumps({"host": socket.gethostname(), "pid": os.getpid(), "since": started})
    try:
        os.lseek(descriptor, 0, os.SEEK_SET)
        os.ftruncate(descriptor, 0)
        os.write(descriptor, owner.encode())
    except OSError:  # a full disk: the lock holds without the name
        pass


def _read_owner(path: Path) -> str:
    """Return the owner that a file names, in words."""
    try:
        with open(path, "rb") as file:
            owner = json.loads(file.read(_MAX_OWNER_BYTES))
        return f"process {int(owner['pid'])} on {str(owner['host'])!r} since {owner['since']!s:.19}"
    except (OSError, ValueError, KeyError, TypeError, RecursionError):
        return "another process"
