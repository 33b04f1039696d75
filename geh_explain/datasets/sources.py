"""Tables that are read from a verified file, or else downloaded."""

from __future__ import annotations

import os
from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING

from geh_explain.datasets.files import DATA_VARIABLE, data_folder, find_file, missing_file_error, read_verified
from geh_explain.errors import GEHRuntimeError, GEHValueError

if TYPE_CHECKING:
    import pandas as pd


@dataclass(frozen=True)
class TableSource:
    """The file of a data set, how to read it, and how to download the data without it.

    Attributes
    ----------
    title : str
        Name of the data set in messages.
    file : str
        Name of the file.
    digest : str
        SHA-256 digest of the file, in hexadecimal.
    subfolders : tuple of str
        Where the file may be below the folder of data files.
    read, download : callable
        Return the table from the contents of the file, or from the network.
    columns : tuple of str
        Columns that the table must have.
    n_rows : int
        Rows that it must have.
    """

    title: str
    file: str
    digest: str
    subfolders: tuple[str, ...]
    read: Callable[[bytes], pd.DataFrame]
    download: Callable[[], pd.DataFrame]
    columns: tuple[str, ...]
    n_rows: int

    def frame(self, folder: str | os.PathLike[str] | None, download: bool) -> pd.DataFrame:
        """Return the table, all columns as floats.

        Parameters
        ----------
        folder
            Folder to read from; None for that of ``GEH_EXPLAIN_DATA``, and a download if there is no file.
        download
            Allow the download.

        Raises
        ------
        GEHValueError
            If ``folder`` does not hold the file, or the table is not the expected one.
        GEHRuntimeError
            If there is no file and the download fails or is not allowed.
        """
        searched = data_folder(folder)
        path = None if searched is None else find_file(searched, self.subfolders, self.file)
        if path is not None:
            frame, origin = self.read(read_verified(path, self.digest)), str(path)
        elif folder is not None:
            # A folder that was named explicitly is not silently replaced by a download.
            raise missing_file_error(folder, self.title, self.file, self.subfolders)
        else:
            frame, origin = self._downloaded(download), "the download"
        self._check(frame, origin)
        return frame.astype(float)

    def _downloaded(self, download: bool) -> pd.DataFrame:
        """Return the downloaded table; raises GEHRuntimeError with the way out if that is not possible."""
        reason = "downloads are off"
        if download:
            try:
                return self.download()
            # Network, disk, or another format at the source: the way out is the same.
            except Exception as error:
                reason = f"the download failed: {type(error).__name__}: {error}"
        raise GEHRuntimeError(
            f"{self.title} was not found ({reason}). Put {self.file} into a folder and pass it as folder=, or in the "
            f"environment variable {DATA_VARIABLE}."
        )

    def _check(self, frame: pd.DataFrame, origin: str) -> None:
        """Raise GEHValueError if rows or columns are not those of the data set."""
        missing = [name for name in self.columns if name not in frame.columns]
        if missing or len(frame) != self.n_rows:
            raise GEHValueError(
                f"{self.title}: {origin} has {len(frame)} rows and the columns {list(frame.columns)} instead of "
                f"{self.n_rows} rows and the columns {list(self.columns)}; get the data set again."
            )
