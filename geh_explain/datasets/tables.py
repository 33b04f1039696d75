"""The paper's three tables of real data: California housing, bike sharing, energy efficiency."""

from __future__ import annotations

import os
from io import BytesIO
from typing import TYPE_CHECKING

from geh_explain.datasets.regression import Regression
from geh_explain.datasets.sources import TableSource
from geh_explain.errors import GEHRuntimeError, GEHValueError

if TYPE_CHECKING:
    import pandas as pd

#: Columns of cal_housing.data, which has no header.
_HOUSING_COLUMNS = (
    "longitude",
    "latitude",
    "housing age",
    "total rooms",
    "total bedrooms",
    "population",
    "households",
    "income",
    "house value",
)
#: Columns of hour.csv and their names in this package; its other columns are dates, and parts of the count.
_BIKE_COLUMNS = {
    "season": "season",
    "yr": "year",
    "mnth": "month",
    "hr": "hour",
    "holiday": "holiday",
    "weekday": "weekday",
    "workingday": "workingday",
    "weathersit": "weather",
    "temp": "temperature",
    "atemp": "feeling temperature",
    "hum": "humidity",
    "windspeed": "windspeed",
    "cnt": "count",
}
#: Words for categories in OpenML's copy; hour.csv has their numbers, from 1.
_BIKE_CATEGORIES = {
    "season": ("spring", "summer", "fall", "winter"),
    "weather": ("clear", "misty", "rain", "heavy_rain"),
}
#: Columns of OpenML's copy in physical units: the name in this package, and the value that hour.csv divides by.
_BIKE_MAXIMA = {"temp": ("temperature", 41), "feel_temp": ("feeling temperature", 50), "windspeed": ("windspeed", 67)}
#: Columns of energy.csv and their names in this package.
_ENERGY_COLUMNS = {
    "X1": "compactness",
    "X2": "surface area",
    "X3": "wall area",
    "X4": "roof area",
    "X5": "height",
    "X6": "orientation",
    "X7": "glazing area",
    "X8": "glazing distribution",
    "Y1": "heating load",
    "Y2": "cooling load",
}
#: Columns of OpenML's copy and their names in this package; it has no cooling load.
_ENERGY_OPENML_COLUMNS = {
    "relative_compactness": "compactness",
    "surface_area": "surface area",
    "wall_area": "wall area",
    "roof_area": "roof area",
    "overall_height": "height",
    "orientation": "orientation",
    "glazing_area": "glazing area",
    "glazing_area_distribution": "glazing distribution",
    "heating_load": "heating load",
}
#: Target columns of the energy data, by the value of the argument ``target``.
_LOADS = {"heating": "heating load", "cooling": "cooling load"}


def california_housing(
    folder: str | os.PathLike[str] | None = None, *, scaled: bool = True, download: bool = True
) -> Regression:
    """Return California housing: 20,640 districts in 1990, eight features, and the median house value in dollars.

    Parameters
    ----------
    folder
        Folder with ``cal_housing.data``; None for that of ``GEH_EXPLAIN_DATA``, else a download by scikit-learn, whose
        averages per household are turned back into totals.
    scaled
        Scale as in the paper: features to (0.5, 1.5), the target to (0, 1). False keeps the original units.
    download
        Allow the download.

    Raises
    ------
    GEHValueError
        If ``folder`` does not hold the file, or it is damaged.
    GEHRuntimeError
        If there is no file, and the download fails or is not allowed.

    Examples
    --------
    >>> california_housing().X.shape  # doctest: +SKIP
    (20640, 8)
    """
    return _regression(_HOUSING_SOURCE.frame(folder, download), "house value", scaled)


def bike_sharing(
    folder: str | os.PathLike[str] | None = None, *, scaled: bool = True, download: bool = True
) -> Regression:
    """Return bike sharing: 17,379 hours in Washington in 2011 and 2012, twelve features, and the count of rentals.

    Parameters
    ----------
    folder
        Folder with ``hour.csv``; None for that of ``GEH_EXPLAIN_DATA``, else a download from OpenML.
    scaled
        Scale as in the paper: features to (0.5, 1.5), the target to (0, 1). False keeps the original units.
    download
        Allow the download.

    Raises
    ------
    GEHValueError
        If ``folder`` does not hold the file, or it is damaged.
    GEHRuntimeError
        If there is no file, and the download fails or is not allowed.

    Examples
    --------
    >>> bike_sharing().X["workingday"].unique().tolist()  # doctest: +SKIP
    [0.5, 1.5]
    """
    return _regression(_BIKE_SOURCE.frame(folder, download), "count", scaled)


def energy_efficiency(
    folder: str | os.PathLike[str] | None = None, *, target: str = "heating", scaled: bool = True, download: bool = True
) -> Regression:
    """Return energy efficiency: 768 simulated buildings, eight features, and the load of heating or cooling.

    Parameters
    ----------
    folder
        Folder with ``energy.csv``; None for that of ``GEH_EXPLAIN_DATA``, else a download from OpenML.
    target
        ``"heating"`` or ``"cooling"``; the download has the heating load only.
    scaled
        Scale as in the paper: features to (0.5, 1.5), the target to (0, 1). False keeps the original units.
    download
        Allow the download.

    Raises
    ------
    GEHValueError
        If ``target`` is unknown, ``folder`` does not hold the file, or it is damaged.
    GEHRuntimeError
        If there is no file, and the download fails, is not allowed, or lacks the target.

    Examples
    --------
    >>> energy_efficiency(target="cooling").y.name  # doctest: +SKIP
    'cooling load'
    """
    if target not in _LOADS:
        raise GEHValueError(f"target={target!r} is unknown; use 'heating' or 'cooling'.")
    frame = _ENERGY_SOURCE.frame(folder, download)
    column = _LOADS[target]
    if column not in frame:
        raise GEHRuntimeError(
            f"target={target!r}: the download has the heating load only. Put {_ENERGY_SOURCE.file} into a folder and "
            "pass it as folder=."
        )
    other_loads = [load for load in _LOADS.values() if load != column]
    return _regression(frame.drop(columns=other_loads, errors="ignore"), column, scaled)


def _regression(frame: pd.DataFrame, target: str, scaled: bool) -> Regression:
    """Return a frame as features and the target column, scaled as in the paper where ``scaled`` is True."""
    table = Regression(frame.drop(columns=target), frame[target])
    return table.scaled() if scaled else table


def _read_housing(contents: bytes) -> pd.DataFrame:
    """Return the table of cal_housing.data."""
    import pandas as pd

    return pd.read_csv(BytesIO(contents), header=None, names=list(_HOUSING_COLUMNS))


def _download_housing() -> pd.DataFrame:
    """Return scikit-learn's copy with the columns of cal_housing.data."""
    import pandas as pd
    from sklearn.datasets import fetch_california_housing

    frame = fetch_california_housing(as_frame=True).frame
    # It has averages per household, to be multiplied by the number of households; all of these are whole numbers.
    households = (frame["Population"] / frame["AveOccup"]).round()
    columns = {
        "longitude": frame["Longitude"],
        "latitude": frame["Latitude"],
        "housing age": frame["HouseAge"],
        "total rooms": (frame["AveRooms"] * households).round(),
        "total bedrooms": (frame["AveBedrms"] * households).round(),
        "population": frame["Population"],
        "households": households,
        "income": frame["MedInc"],
        "house value": 100_000 * frame["MedHouseVal"],
    }
    return pd.DataFrame(columns)


def _read_bike(contents: bytes) -> pd.DataFrame:
    """Return the table of hour.csv."""
    import pandas as pd

    return pd.read_csv(BytesIO(contents)).rename(columns=_BIKE_COLUMNS)[list(_BIKE_COLUMNS.values())]


def _download_bike() -> pd.DataFrame:
    """Return OpenML's copy with the columns and units of hour.csv."""
    import pandas as pd
    from sklearn.datasets import fetch_openml

    frame = fetch_openml(data_id=42712, as_frame=True, parser="auto").frame
    columns = {}
    for name, words in _BIKE_CATEGORIES.items():
        numbers = {word: number for number, word in enumerate(words, start=1)}
        columns[name] = frame[name].astype(str).map(numbers)
    for name in ("holiday", "workingday"):
        # Truth values arrive as words or numbers, depending on the version of scikit-learn.
        columns[name] = frame[name].astype(str).isin(["True", "1", "1.0"]).astype(float)
    for name in ("month", "hour", "weekday", "humidity", "count"):
        columns[name] = frame[name].astype(float)
    for name, (column, maximum) in _BIKE_MAXIMA.items():
        columns[column] = frame[name].astype(float) / maximum
    year = frame["year"].astype(float)
    columns["year"] = year - year.min()
    return pd.DataFrame({name: columns[name] for name in _BIKE_COLUMNS.values()})


def _read_energy(contents: bytes) -> pd.DataFrame:
    """Return the table of energy.csv, without the empty rows at its end."""
    import pandas as pd

    frame = pd.read_csv(BytesIO(contents)).rename(columns=_ENERGY_COLUMNS)
    return frame[list(_ENERGY_COLUMNS.values())].dropna(how="all")


def _download_energy() -> pd.DataFrame:
    """Return OpenML's copy with the columns of energy.csv, without the cooling load."""
    import pandas as pd
    from sklearn.datasets import fetch_openml

    frame = fetch_openml(data_id=44960, as_frame=True, parser="auto").frame
    return pd.DataFrame({column: frame[name].astype(float) for name, column in _ENERGY_OPENML_COLUMNS.items()})


_HOUSING_SOURCE = TableSource(
    title="California housing",
    file="cal_housing.data",
    digest="a2b44dcc7e1c9091b43c4f458b25cbd1f7e8068d08edd26bc4703108d3fa6214",
    subfolders=("", "california_housing", "CaliforniaHousing"),
    read=_read_housing,
    download=_download_housing,
    columns=_HOUSING_COLUMNS,
    n_rows=20_640,
)
_BIKE_SOURCE = TableSource(
    title="bike sharing",
    file="hour.csv",
    digest="e03de4ee4ef4dc376ac6e04bf829673c6269e8eba5c60fa121640fa2f829504f",
    subfolders=("", "bike_sharing"),
    read=_read_bike,
    download=_download_bike,
    columns=tuple(_BIKE_COLUMNS.values()),
    n_rows=17_379,
)
_ENERGY_SOURCE = TableSource(
    title="energy efficiency",
    file="energy.csv",
    digest="3721723ac3e3cf4844f35f364700a26cbce16605515d6bf9d80c0555dc173677",
    subfolders=("", "energy_efficiency"),
    read=_read_energy,
    download=_download_energy,
    columns=tuple(_ENERGY_OPENML_COLUMNS.values()),
    n_rows=768,
)
