"""Files that are written whole or not at all.

Everything is written to a temporary file in the same folder, which replaces the former file at the end. An error, a
full disk or a kill in between leaves the former file as it was.
"""

from __future__ import annotations

import errno
import os
import secrets
import shutil
import stat
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import IO, Any

from geh_explain.errors import GEHRuntimeError, GEHValueError

#: Ends the names of temporary files, which a kill may leave.
PART_SUFFIX = ".part"
#: Files of more bytes are written only if the disk has that much space.
_LARGE = 2**24
#: What to do about errors of the operating system, by their number.
_ADVICE = {
    errno.ENOSPC: "free some space, or give a path on another disk",
    errno.EDQUOT: "free some space, or give a path on another disk",
    errno.EFBIG: "raise the limit of file sizes, or give a path on another disk",
    errno.EACCES: "give a path that you may write to",
    errno.EPERM: "give a path that you may write to",
    errno.EROFS: "give a path that you may write to",
    errno.ENAMETOOLONG: "give a shorter name",
    errno.ENOENT: "make its folder first",
    errno.EEXIST: "give a path that is no file",
    errno.ENOTDIR: "give a path inside of a folder",
    errno.ELOOP: "give a path that is no link",
}


@contextmanager
def write_whole(path: str | os.PathLike[str], expected_bytes: int = 0) -> Iterator[IO[bytes]]:
    """Open a file that takes the place of ``path`` when the context ends without an error.

    Parameters
    ----------
    path
        The file. A symbolic link stays, and the file that it names is replaced. Permissions of a former file are kept.
    expected_bytes
        How many bytes will be written at most, as far as that is known.

    Raises
    ------
    GEHValueError
        If ``path`` is a folder or a device, or lies in a folder that does not exist.
    GEHRuntimeError
        If the file cannot be written, with the reason and what to do. The former file is intact then, and no temporary
        file is left.

    Examples
    --------
    >>> import tempfile
    >>> path = Path(tempfile.mkdtemp()) / "numbers.txt"
    >>> with write_whole(path) as file:
    ...     _ = file.write(b"1 2 3")
    >>> path.read_text()
    '1 2 3'
    """
    path = Path(path)
    with _explained(path):
        final = _check_place(path)
        _check_space(final, expected_bytes)
        temporary = final.with_name(f".{secrets.token_hex(8)}{PART_SUFFIX}")
        # O_EXCL and O_NOFOLLOW: never write to a file or link that somebody else has put there.
        flags = os.O_RDWR | os.O_CREAT | os.O_EXCL | getattr(os, "O_NOFOLLOW", 0) | getattr(os, "O_BINARY", 0)
        descriptor = os.open(temporary, flags, 0o666)
        try:
            with open(descriptor, "w+b") as file:
                if final.exists():
                    shutil.copymode(final, temporary)
                yield file
                file.flush()
                os.fsync(file.fileno())
            os.replace(temporary, final)
        except BaseException:
            with suppress(OSError):
                temporary.unlink()
            raise
        _sync_folder(final.parent)


def save_figure(figure: Any, path: str | os.PathLike[str], **options: Any) -> Path:
    """Save a matplotlib figure to a file, whole or not at all, and return the path.

    ``options`` are those of ``figure.savefig``; the format is that of the suffix.
    """
    path = Path(path)
    with write_whole(path) as file:
        figure.savefig(file, **{"format": path.suffix.removeprefix(".") or None, **options})
    return path


def make_folder(folder: Path) -> None:
    """Make a folder and those around it; raises GEHRuntimeError if that is not possible."""
    with _explained(folder):
        folder.mkdir(parents=True, exist_ok=True)


def _check_place(path: Path) -> Path:
    """Return the file to replace, with symbolic links resolved, or raise if ``path`` cannot be one."""
    final = Path(os.path.realpath(path))
    if not final.parent.is_dir():
        raise GEHValueError(f"path={str(path)!r}: there is no folder {str(final.parent)!r}; make it first.")
    if not final.exists():
        return final
    if not stat.S_ISREG(final.stat().st_mode):
        raise GEHValueError(f"path={str(path)!r} is a folder or a device; give the path of a file.")
    if not os.access(final, os.W_OK):
        # A file in a folder that can be written to could be replaced, although it is protected itself.
        raise PermissionError(errno.EACCES, "the file is read-only")
    return final


def _check_space(path: Path, expected_bytes: int) -> None:
    """Raise if a large file would not fit on the disk."""
    if expected_bytes <= _LARGE:
        return
    free = shutil.disk_usage(path.parent).free
    if free < expected_bytes:
        needed = f"up to {expected_bytes / 1e6:,.0f} MB are needed, and {free / 1e6:,.0f} MB are free"
        raise OSError(errno.ENOSPC, f"{os.strerror(errno.ENOSPC)}; {needed}")


@contextmanager
def _explained(path: Path) -> Iterator[None]:
    """Turn errors of the operating system into GEHRuntimeError, with the path, the reason and what to do."""
    try:
        yield
    except OSError as error:
        raise explain_os_error(path, error) from error


def explain_os_error(path: Path, error: OSError) -> GEHRuntimeError:
    """Return the error that says which file could not be written, why, and what to do.

    >>> print(explain_os_error(Path("result.npz"), OSError(errno.ENOSPC, "No space left on device")))
    path='result.npz' was not written (No space left on device); free some space, or give a path on another disk.
    """
    advice = _ADVICE.get(error.errno or 0, "give another path")
    return GEHRuntimeError(f"path={str(path)!r} was not written ({error.strerror or error}); {advice}.")


def _sync_folder(folder: Path) -> None:
    """Bring the new name of a file to the disk, where the system can."""
    with suppress(OSError):
        descriptor = os.open(folder, os.O_RDONLY)
        try:
            os.fsync(descriptor)
        finally:
            os.close(descriptor)
