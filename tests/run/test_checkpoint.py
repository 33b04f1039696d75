"""Runs with a checkpoint folder resume bit-identically, also after they were killed."""

import json

import numpy as np
import pandas as pd
import pytest
import torch
from interrupted_runs import OneAfterTheOther, assert_identical, ensemble, kill_until_done, network, rows

import geh_explain as geh

CASES = {
    "several draws at once": ({}, {}, 200),
    "one draw at a time": ({}, {"batch_size": 60}, 200),
    "draws that depend on those before": ({"posterior": OneAfterTheOther}, {}, 200),
    "an ensemble": ({"posterior": ensemble}, {}, 200),
    "Stein's noise": ({"engine": "stein"}, {"draws": 4}, 50),
    "differences": ({"engine": "difference"}, {}, 50),
    "a hidden layer": ({"layer": "1", "units": geh.units.Subset(range(6))}, {"scale": "std"}, 200),
    "moments only": ({}, {"groups": 3, "memory": 2e-5}, 30),
    "groups by hand": ({}, {"groups": np.arange(200) % 4}, 200),
    "case weights": ({}, {"sample_weight": np.arange(200) % 5}, 200),
}


@pytest.mark.filterwarnings("ignore::geh_explain.GEHWarning")
@pytest.mark.parametrize("case", CASES)
def test_a_run_taken_up_again_is_the_same_to_the_last_bit(case, tmp_path):
    made, asked, count = CASES[case]
    made = made | {"posterior": made["posterior"]()} if "posterior" in made else made
    asked = {"draws": 30, "progress": False, **asked}
    complete = geh.GEHExplainer(network(), **made).explain(rows(count), **asked)
    with_folder = geh.GEHExplainer(network(), **made).explain(rows(count), **asked, checkpoint=tmp_path)
    assert_identical(complete, with_folder)
    kept = sorted(tmp_path.glob("draw_*.npz"))
    assert len(kept) >= 2
    for path in kept[len(kept) // 2 :]:
        path.unlink()
    before = {path: path.stat().st_mtime_ns for path in tmp_path.glob("draw_*.npz")}
    assert_identical(complete, geh.GEHExplainer(network(), **made).explain(rows(count), **asked, checkpoint=tmp_path))
    assert {path: path.stat().st_mtime_ns for path in before} == before
    assert sorted(tmp_path.glob("draw_*.npz")) == kept


def test_what_is_there_is_not_computed_again(tmp_path, monkeypatch):
    explainer = geh.GEHExplainer(network())
    first = explainer.explain(rows(), draws=30, groups=2, progress=False, checkpoint=tmp_path)
    monkeypatch.setattr("geh_explain.run.loop._DrawLoop._sums", lambda *_: pytest.fail("computed again"))
    assert_identical(first, explainer.explain(rows(), draws=30, groups=2, progress=False, checkpoint=tmp_path))
    fewer = explainer.explain(rows(), draws=7, groups=2, progress=False, checkpoint=tmp_path)
    np.testing.assert_array_equal(fewer.geh.draws, first.geh.draws[:7])


def test_more_draws_go_on_from_those_that_are_there(tmp_path):
    explainer = geh.GEHExplainer(network())
    few = explainer.explain(rows(), draws=10, groups=2, progress=False, checkpoint=tmp_path)
    more = explainer.explain(rows(), draws=25, groups=2, progress=False, checkpoint=tmp_path)
    np.testing.assert_array_equal(more.geh.draws[:10], few.geh.draws)
    alone = explainer.explain(rows(), draws=25, groups=2, progress=False)
    np.testing.assert_allclose(more.geh.draws, alone.geh.draws, rtol=1e-5, atol=1e-7)


# Another run


@pytest.mark.parametrize(
    ("made", "asked", "data", "named"),
    [
        ({}, {"seed": 1}, {}, r"seed \(0 there, 1 here\)"),
        ({}, {"groups": 3}, {}, r"groups \(2 there, 3 here\)"),
        ({}, {"scale": "std"}, {}, r"scale \(None there, std here\)"),
        ({}, {"target": 0}, {}, r"target \(None there, 0 here\)"),
        ({}, {"memory": 3.5}, {}, r"memory \(None there, 3.5 here\)"),
        ({}, {"batch_size": 7}, {}, r"batch_size \(None there, 7 here\)"),
        ({}, {}, {"seed": 2}, r"another inputs \("),
        ({}, {}, {"count": 199}, r"another inputs \("),
        ({"output": "probability"}, {}, {}, r"output \(raw there, probability here\)"),
        ({"smooth": 5.0}, {}, {}, r"smooth \(auto there, 5.0 here\)"),
        ({"engine": "exact"}, {}, {}, r"engine \(Structured\(\) there, Exact\(\) here\)"),
        ({"units": geh.units.Subset([0, 1, 2])}, {}, {}, r"another units \("),
        ({"posterior": OneAfterTheOther()}, {}, {}, r"another posterior \("),
    ],
    ids=lambda value: str(value)[:30],
)
def test_a_folder_of_another_run_is_refused_and_the_difference_named(made, asked, data, named, tmp_path):
    options = {"draws": 3, "groups": 2, "progress": False, "checkpoint": tmp_path}
    geh.GEHExplainer(network()).explain(rows(), **options)
    before = {path.name: path.read_bytes() for path in tmp_path.iterdir() if path.suffix != ".lock"}
    with pytest.raises(geh.GEHError, match=f"belongs to another run.*{named}"):
        geh.GEHExplainer(network(), **made).explain(rows(**data), **{**options, **asked})
    assert {path.name: path.read_bytes() for path in tmp_path.iterdir() if path.suffix != ".lock"} == before


def test_another_model_and_another_version_are_refused(tmp_path, monkeypatch):
    options = {"draws": 3, "groups": 2, "progress": False, "checkpoint": tmp_path}
    net = network()
    geh.GEHExplainer(net).explain(rows(), **options)
    with torch.no_grad():
        net[3].bias[2] += 1e-6
    with pytest.raises(geh.GEHError, match="another model"):
        geh.GEHExplainer(net).explain(rows(), **options)
    with pytest.raises(geh.GEHError, match="another model"):
        geh.GEHExplainer(network(drop=0.3)).explain(rows(), **options)
    monkeypatch.setattr("geh_explain.run.identity.__version__", "0.0.1")
    with pytest.raises(geh.GEHError, match=r"geh_explain \(.* there, 0.0.1 here\)"):
        geh.GEHExplainer(network()).explain(rows(), **options)


@pytest.mark.parametrize("kind", [pd.Series, pd.Categorical, lambda labels: labels.astype(object)])
def test_other_labels_of_the_points_are_refused(kind, tmp_path):
    explainer, points = geh.GEHExplainer(network()), np.arange(200)
    explainer.explain(rows(), draws=2, groups=kind(points % 2), progress=False, checkpoint=tmp_path)
    with pytest.raises(geh.GEHError, match="belongs to another run, with another groups"):
        explainer.explain(rows(), draws=2, groups=kind(points // 7 % 2), progress=False, checkpoint=tmp_path)


def test_a_folder_that_is_none_is_refused(tmp_path):
    (tmp_path / "file").write_text("")
    explainer = geh.GEHExplainer(network())
    with pytest.raises(geh.GEHError, match="is a file; give a folder"):
        explainer.explain(rows(), checkpoint=tmp_path / "file", progress=False)
    with pytest.raises(geh.GEHError, match="checkpoint=7 is no path"):
        explainer.explain(rows(), checkpoint=7, progress=False)
    for content in ("{", "[1]", "[" * 100_000):
        (tmp_path / "run.json").write_text(content)
        with pytest.raises(geh.GEHError, match=r"its run\.json cannot be read"):
            explainer.explain(rows(), checkpoint=tmp_path, progress=False)


@pytest.mark.parametrize("damage", ["cut", "flip", "other"])
def test_a_damaged_draw_is_computed_again(damage, tmp_path):
    options = {"draws": 6, "groups": 2, "batch_size": 100, "progress": False, "checkpoint": tmp_path}
    first = geh.GEHExplainer(network()).explain(rows(), **options)
    path = tmp_path / "draw_000003.npz"
    content = path.read_bytes()
    if damage == "cut":
        path.write_bytes(content[: len(content) // 2])
    elif damage == "flip":
        middle = len(content) // 3
        path.write_bytes(content[:middle] + bytes([content[middle] ^ 255]) + content[middle + 1 :])
    else:
        np.savez(path, signed=np.zeros((1, 2, 3)), absolute=np.zeros((1, 3)), skipped=0)
    with pytest.warns(geh.GEHWarning, match="draw_000003.npz is damaged"):
        assert_identical(first, geh.GEHExplainer(network()).explain(rows(), **options))
    assert_identical(first, geh.GEHExplainer(network()).explain(rows(), **options))


# Kills


def test_a_killed_run_goes_on_and_ends_as_if_nothing_had_happened(tmp_path):
    (tmp_path / "run").mkdir()
    found = kill_until_done(tmp_path, kills=3, seed=0)
    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    try:
        options = {"draws": 40, "groups": "auto", "batch_size": 500, "progress": False}
        assert_identical(found, geh.GEHExplainer(network()).explain(rows(4000), **options))
    finally:
        torch.set_num_threads(threads)
    assert json.loads((tmp_path / "run" / "run.json").read_text())["seed"] == 0
