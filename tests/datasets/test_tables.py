"""Tables of real data: read from a folder, else downloaded, else an error with the way out; scaled as in the paper."""

import os
from pathlib import Path

import numpy as np
import pandas as pd
import pytest

import geh_explain as geh
from geh_explain.datasets import Regression, bike_sharing, california_housing, energy_efficiency, tables

LOADERS = {
    california_housing: (20640, 8, "house value"),
    bike_sharing: (17379, 12, "count"),
    energy_efficiency: (768, 8, "heating load"),
}
HERE = os.environ.get("GEH_EXPLAIN_DATA")
needs_files = pytest.mark.skipif(
    not HERE or not (Path(HERE) / "bike_sharing").is_dir(), reason="GEH_EXPLAIN_DATA names no folder with the tables"
)


@pytest.fixture
def nowhere(monkeypatch, tmp_path):
    monkeypatch.delenv("GEH_EXPLAIN_DATA", raising=False)
    return tmp_path


@needs_files
@pytest.mark.parametrize("load", LOADERS)
def test_tables_have_names_and_the_papers_scaling(load):
    rows, columns, target = LOADERS[load]
    table = load()
    assert table.X.shape == (rows, columns)
    assert table.y.name == target
    np.testing.assert_allclose(table.X.min(), 0.5)
    np.testing.assert_allclose(table.X.max(), 1.5)
    assert (table.y.min(), table.y.max()) == (0, 1)
    assert not table.X.isna().any().any()
    own = load(HERE, scaled=False)
    np.testing.assert_allclose(own.scaled().X, table.X)


@needs_files
def test_values_are_those_of_the_files():
    home = california_housing(scaled=False)
    assert home.X.iloc[0].tolist() == [-122.23, 37.88, 41, 880, 129, 322, 126, 8.3252]
    assert home.y.iloc[0] == 452600
    hour = bike_sharing(scaled=False)
    assert hour.X.iloc[1][["hour", "temperature", "humidity"]].tolist() == [1, 0.22, 0.8]
    assert hour.y.sum() == 3292679
    heating, cooling = (energy_efficiency(target=target, scaled=False) for target in ("heating", "cooling"))
    assert (heating.y.iloc[0], cooling.y.iloc[0]) == (15.55, 21.33)
    assert list(heating.X.columns) == list(cooling.X.columns)


@needs_files
def test_what_scikit_learn_downloads_gives_the_same_housing(monkeypatch):
    """Its averages per household are made from the same file as scikit-learn makes them."""
    file = california_housing(scaled=False)
    x = file.X
    theirs = pd.DataFrame(
        {
            "MedInc": x["income"],
            "HouseAge": x["housing age"],
            "AveRooms": x["total rooms"] / x["households"],
            "AveBedrms": x["total bedrooms"] / x["households"],
            "Population": x["population"],
            "AveOccup": x["population"] / x["households"],
            "Latitude": x["latitude"],
            "Longitude": x["longitude"],
            "MedHouseVal": file.y / 100_000,
        }
    )
    monkeypatch.setattr("sklearn.datasets.fetch_california_housing", lambda as_frame: pd.Series({"frame": theirs}))
    monkeypatch.delenv("GEH_EXPLAIN_DATA")
    found = california_housing(scaled=False)
    pd.testing.assert_frame_equal(found.X, x)
    pd.testing.assert_series_equal(found.y, file.y)


@needs_files
def test_what_openml_has_gives_the_same_bikes_and_buildings(monkeypatch):
    bikes, buildings = bike_sharing(scaled=False), energy_efficiency(scaled=False)
    words = {1: "spring", 2: "summer", 3: "fall", 4: "winter"}, {1: "clear", 2: "misty", 3: "rain", 4: "heavy_rain"}
    x = bikes.X
    theirs = {
        42712: pd.DataFrame(
            {
                "season": x["season"].map(words[0]).astype("category"),
                "year": x["year"],
                "month": x["month"],
                "hour": x["hour"],
                "holiday": x["holiday"].map({0: "False", 1: "True"}),
                "weekday": x["weekday"],
                "workingday": x["workingday"].map({0: "False", 1: "True"}),
                "weather": x["weather"].map(words[1]).astype("category"),
                "temp": 41 * x["temperature"],
                "feel_temp": 50 * x["feeling temperature"],
                "humidity": x["humidity"],
                "windspeed": 67 * x["windspeed"],
                "count": bikes.y,
            }
        ),
        44960: buildings.X.set_axis(
            [
                *("relative_compactness", "surface_area", "wall_area", "roof_area", "overall_height", "orientation"),
                *("glazing_area", "glazing_area_distribution"),
            ],
            axis=1,
        ).assign(heating_load=buildings.y),
    }
    monkeypatch.setattr(
        "sklearn.datasets.fetch_openml", lambda data_id, as_frame, parser: pd.Series({"frame": theirs[data_id]})
    )
    monkeypatch.delenv("GEH_EXPLAIN_DATA")
    pd.testing.assert_frame_equal(bike_sharing(scaled=False).X, x)
    pd.testing.assert_frame_equal(energy_efficiency(scaled=False).X, buildings.X)
    with pytest.raises(geh.GEHError, match="target='cooling': the download has the heating load only"):
        energy_efficiency(target="cooling")


@pytest.mark.parametrize("load", LOADERS)
def test_what_is_missing_is_named(load, nowhere):
    with pytest.raises(geh.GEHError, match=r"was not found \(downloads are off\). Put .* into a folder"):
        load(download=False)
    with pytest.raises(geh.GEHError, match=r"does not hold .*: there is no"):
        load(nowhere)
    with pytest.raises(geh.GEHError, match="is not a folder"):
        load(nowhere / "none")


@pytest.mark.parametrize("source", [tables._HOUSING_SOURCE, tables._BIKE_SOURCE, tables._ENERGY_SOURCE])
def test_a_changed_file_is_named(source, nowhere):
    (nowhere / source.file).write_text("a,b\n1,2\n")
    with pytest.raises(geh.GEHError, match=f"{source.file} is not the expected file"):
        source.frame(nowhere, download=False)


def test_a_failed_or_changed_download_is_an_error(nowhere, monkeypatch):
    def offline(**options):
        raise OSError("no route to host")

    monkeypatch.setattr("sklearn.datasets.fetch_openml", offline)
    with pytest.raises(geh.GEHError, match="the download failed: OSError: no route to host"):
        bike_sharing()
    short = pd.DataFrame({"AveOccup": [1.0]}).assign(Population=1.0, AveRooms=1.0, AveBedrms=1.0, MedInc=1.0)
    short = short.assign(Latitude=1.0, Longitude=1.0, HouseAge=1.0, MedHouseVal=1.0)
    monkeypatch.setattr("sklearn.datasets.fetch_california_housing", lambda as_frame: pd.Series({"frame": short}))
    with pytest.raises(geh.GEHError, match="the download has 1 rows"):
        california_housing()


def test_a_split_keeps_every_row_once():
    table = Regression(pd.DataFrame({"a": np.arange(100.0)}), pd.Series(np.arange(100.0)))
    parts = table.split(seed=3)
    assert [len(part) for part in parts] == [70, 20, 10]
    assert sorted(pd.concat([part.y for part in parts])) == list(range(100))
    assert all((part.X["a"] == part.y).all() for part in parts)
    assert not parts[0].y.equals(table.split(seed=4)[0].y)


def test_an_unknown_target_is_refused():
    with pytest.raises(geh.GEHError, match="target='warming' is unknown"):
        energy_efficiency(target="warming")
