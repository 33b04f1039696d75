"""The paper's three tables of real data: California housing, bike sharing, energy efficiency."""

from __future__ import annotations

import os
from collections.abc import Callable
from dataclasses import dataclass
from io import BytesIO
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from geh_explain.datasets.files import VARIABLE, checked, data_folder
from geh_explain.errors import GEHRuntimeError, GEHValueError

if TYPE_CHECKING:
    import pandas as pd

#: To which intervals the paper scales inputs and targets.
_INPUTS, _TARGET = (0.5, 1.5), (0.0, 1.0)

_HOUSING = (
    *("longitude", "latitude", "housing age", "total rooms", "total bedrooms", "population", "households", "income"),
    "house value",
)
_BIKE = {
    **{"season": "season", "yr": "year", "mnth": "month", "hr": "hour", "holiday": "holiday", "weekday": "weekday"},
    **{"workingday": "workingday", "weathersit": "weather", "temp": "temperature", "atemp": "feeling temperature"},
    **{"hum": "humidity", "windspeed": "windspeed", "cnt": "count"},
}
_ENERGY = {
    **{"X1": "compactness", "X2": "surface area", "X3": "wall area", "X4": "roof area", "X5": "height"},
    **{"X6": "orientation", "X7": "glazing area", "X8": "glazing distribution"},
    **{"Y1": "heating load", "Y2": "cooling load"},
}
_LOADS = {"heating": "heating load", "cooling": "cooling load"}


@dataclass(frozen=True)
class Regression:
    """Inputs ``X``, a DataFrame with names, and the target ``y``."""

    X: pd.DataFrame
    y: pd.Series[float]

    def __len__(self) -> int:
        return len(self.y)

    def scaled(self) -> Regression:
        """Return it as the paper scales: inputs from 0.5 to 1.5, the target from 0 to 1."""
        return Regression(_to_interval(self.X, *_INPUTS), _to_interval(self.y, *_TARGET))

    def split(self, seed: int = 0) -> tuple[Regression, Regression, Regression]:
        """Return 70 % of the rows to train with, 20 % to validate and 10 % to test, as in the paper."""
        order = np.random.default_rng(seed).permutation(len(self))
        cuts = [round(0.7 * len(self)), round(0.9 * len(self))]
        train, validation, test = (Regression(self.X.iloc[part], self.y.iloc[part]) for part in np.split(order, cuts))
        return train, validation, test


@dataclass(frozen=True)
class _Source:
    """A table's file, where it may lie below a folder, and what to do without it."""

    title: str
    file: str
    digest: str
    places: tuple[str, ...]
    read: Callable[[bytes], pd.DataFrame]
    download: Callable[[], pd.DataFrame]
    columns: tuple[str, ...]
    rows: int

    def frame(self, folder: str | os.PathLike[str] | None, download: bool) -> pd.DataFrame:
        where = data_folder(folder)
        found = None if where is None else self._find(where)
        if found is not None:
            frame, origin = self.read(checked(found, self.digest)), str(found)
        elif folder is not None:
            places = ", ".join(place for place in self.places if place)
            raise GEHValueError(
                f"folder={str(folder)!r} does not hold {self.title}: there is no {self.file} in it, nor in {places} "
                "below it."
            )
        else:
            frame, origin = self._downloaded(download), "the download"
        self._check(frame, origin)
        return frame.astype(float)

    def _find(self, folder: Path) -> Path | None:
        return next(
            (folder / place / self.file for place in self.places if (folder / place / self.file).is_file()), None
        )

    def _downloaded(self, download: bool) -> pd.DataFrame:
        reason = "downloads are off"
        if download:
            try:
                return self.download()
            except Exception as error:  # no network, no room, another form: the message says what to do
                reason = f"the download failed: {type(error).__name__}: {error}"
        raise GEHRuntimeError(
            f"{self.title} was not found ({reason}). Put {self.file} into a folder and pass it as folder=, or in the "
            f"environment variable {VARIABLE}."
        )

    def _check(self, frame: pd.DataFrame, origin: str) -> None:
        missing = [name for name in self.columns if name not in frame.columns]
        if missing or len(frame) != self.rows:
            raise GEHValueError(
                f"{self.title}: {origin} has {len(frame)} rows and the columns {list(frame.columns)}; {self.rows} rows "
                f"are wanted, and {missing or 'no column'} is missing."
            )


def california_housing(
    folder: str | os.PathLike[str] | None = None, *, scaled: bool = True, download: bool = True
) -> Regression:
    """Return 20,640 districts of California in 1990: eight features, and the median house value.

    They are read from ``folder`` (or the one that ``GEH_EXPLAIN_DATA`` names), else downloaded by scikit-learn, whose
    averages per household are turned back into totals. With ``scaled``, as the paper scales; else in their own units.

    >>> california_housing().X.shape  # doctest: +SKIP
    (20640, 8)
    """
    return _table(_HOUSING_SOURCE.frame(folder, download), "house value", scaled)


def bike_sharing(
    folder: str | os.PathLike[str] | None = None, *, scaled: bool = True, download: bool = True
) -> Regression:
    """Return 17,379 hours of bike rental in Washington in 2011 and 2012: twelve features, and the count of rentals.

    They are read from ``folder`` (or the one that ``GEH_EXPLAIN_DATA`` names), else downloaded from OpenML.

    >>> bike_sharing().X["workingday"].unique().tolist()  # doctest: +SKIP
    [0.5, 1.5]
    """
    return _table(_BIKE_SOURCE.frame(folder, download), "count", scaled)


def energy_efficiency(
    folder: str | os.PathLike[str] | None = None, *, target: str = "heating", scaled: bool = True, download: bool = True
) -> Regression:
    """Return 768 simulated buildings: eight features, and the load of ``"heating"`` or ``"cooling"``.

    They are read from ``folder`` (or the one that ``GEH_EXPLAIN_DATA`` names), else downloaded from OpenML, which has
    the heating load only.

    >>> energy_efficiency(target="cooling").y.name  # doctest: +SKIP
    'cooling load'
    """
    if target not in _LOADS:
        raise GEHValueError(f"target={target!r} is unknown; use 'heating' or 'cooling'.")
    frame = _ENERGY_SOURCE.frame(folder, download)
    if _LOADS[target] not in frame:
        raise GEHRuntimeError(
            f"target={target!r}: the download has the heating load only. Put {_ENERGY_SOURCE.file} into a folder and "
            "pass it as folder=."
        )
    return _table(
        frame.drop(columns=[name for name in _LOADS.values() if name != _LOADS[target]], errors="ignore"),
        _LOADS[target],
        scaled,
    )


def _table(frame: pd.DataFrame, target: str, scaled: bool) -> Regression:
    table = Regression(frame.drop(columns=target), frame[target])
    return table.scaled() if scaled else table


def _to_interval(values: Any, low: float, high: float) -> Any:
    return low + (high - low) * (values - values.min()) / (values.max() - values.min())


def _read_housing(contents: bytes) -> pd.DataFrame:
    import pandas as pd

    return pd.read_csv(BytesIO(contents), header=None, names=list(_HOUSING))


def _download_housing() -> pd.DataFrame:
    from sklearn.datasets import fetch_california_housing

    found = fetch_california_housing(as_frame=True).frame
    households = (found["Population"] / found["AveOccup"]).round()
    columns = [
        *(found["Longitude"], found["Latitude"], found["HouseAge"]),
        *((found[name] * households).round() for name in ("AveRooms", "AveBedrms")),
        *(found["Population"], households, found["MedInc"], 100_000 * found["MedHouseVal"]),
    ]
    return _frame(dict(zip(_HOUSING, columns, strict=True)))


def _read_bike(contents: bytes) -> pd.DataFrame:
    import pandas as pd

    return pd.read_csv(BytesIO(contents)).rename(columns=_BIKE)[list(_BIKE.values())]


def _download_bike() -> pd.DataFrame:
    from sklearn.datasets import fetch_openml

    found = fetch_openml(data_id=42712, as_frame=True, parser="auto").frame
    words = {
        "season": ["spring", "summer", "fall", "winter"],
        "weather": ["clear", "misty", "rain", "heavy_rain"],
    }
    columns = {name: found[name].astype(str).map(dict(zip(words[name], range(1, 5), strict=True))) for name in words}
    for name in ("holiday", "workingday"):
        columns[name] = found[name].astype(str).isin(["True", "1", "1.0"]).astype(float)
    for name, here, divisor in (
        *((name, name, 1) for name in ("month", "hour", "weekday", "humidity", "count")),
        *(("temp", "temperature", 41), ("feel_temp", "feeling temperature", 50), ("windspeed", "windspeed", 67)),
    ):
        columns[here] = found[name].astype(float) / divisor
    year = found["year"].astype(float)
    columns["year"] = year - year.min()
    return _frame({name: columns[name] for name in _BIKE.values()})


def _read_energy(contents: bytes) -> pd.DataFrame:
    import pandas as pd

    found = pd.read_csv(BytesIO(contents)).rename(columns=_ENERGY)
    return found[list(_ENERGY.values())].dropna(how="all")


def _download_energy() -> pd.DataFrame:
    from sklearn.datasets import fetch_openml

    found = fetch_openml(data_id=44960, as_frame=True, parser="auto").frame
    theirs = [
        *("relative_compactness", "surface_area", "wall_area", "roof_area", "overall_height", "orientation"),
        *("glazing_area", "glazing_area_distribution", "heating_load"),
    ]
    return _frame({here: found[there].astype(float) for there, here in zip(theirs, _ENERGY.values(), strict=False)})


def _frame(columns: dict[str, Any]) -> pd.DataFrame:
    import pandas as pd

    return pd.DataFrame(columns)


_HOUSING_SOURCE = _Source(
    "California housing",
    "cal_housing.data",
    "a2b44dcc7e1c9091b43c4f458b25cbd1f7e8068d08edd26bc4703108d3fa6214",
    ("", "california_housing", "CaliforniaHousing"),
    _read_housing,
    _download_housing,
    _HOUSING,
    20_640,
)
_BIKE_SOURCE = _Source(
    "bike sharing",
    "hour.csv",
    "e03de4ee4ef4dc376ac6e04bf829673c6269e8eba5c60fa121640fa2f829504f",
    ("", "bike_sharing"),
    _read_bike,
    _download_bike,
    tuple(_BIKE.values()),
    17_379,
)
_ENERGY_SOURCE = _Source(
    "energy efficiency",
    "energy.csv",
    "3721723ac3e3cf4844f35f364700a26cbce16605515d6bf9d80c0555dc173677",
    ("", "energy_efficiency"),
    _read_energy,
    _download_energy,
    tuple(_ENERGY.values())[:9],
    768,
)
