"""Accounts that are saved and loaded."""

import json

import numpy as np
import pandas as pd
import pytest
import torch
from explaining import point_explainer, random_points
from torch import nn

import geh_explain as geh


def accounts(rows, baseline="mean"):
    torch.manual_seed(0)
    net = nn.Sequential(nn.Linear(3, 12), nn.ReLU(), nn.Dropout(0.3), nn.Linear(12, 1)).double()
    return geh.GEHExplainer(net).explain_row(
        random_points(rows, 3), data=random_points(30, 3, seed=1), baseline=baseline, draws=4, progress=False
    )


def check_same(loaded, saved):
    pd.testing.assert_frame_equal(loaded.table(0.9), saved.table(0.9), check_exact=True)
    pd.testing.assert_frame_equal(loaded.main, saved.main, check_exact=True)
    assert repr(loaded) == repr(saved)
    assert (loaded.smoothed, loaded.warnings, loaded.steps) == (saved.smoothed, saved.warnings, saved.steps)
    assert (loaded.error, loaded.n_baselines, loaded.n_draws) == (saved.error, saved.n_baselines, saved.n_draws)


@pytest.mark.filterwarnings("ignore:smooth.*changes the difference")  # the network is not trained
def test_one_and_several_accounts_come_back(tmp_path):
    one = accounts(1)
    check_same(geh.LocalExplanation.load(one.save(tmp_path / "one")), one)
    several = accounts(3, baseline=random_points(5, 3, seed=2))
    path = several.save(tmp_path / "several.npz")
    loaded = geh.LocalExplanations.load(path)
    assert len(loaded) == 3
    for mine, theirs in zip(loaded, several, strict=True):
        check_same(mine, theirs)
    with pytest.raises(geh.GEHError, match="accounts of different calls do not fit into one file"):
        geh.LocalExplanations([one, *several]).save(tmp_path / "mixed.npz")
    with pytest.raises(geh.GEHError, match=r"holds 3 accounts; read it by LocalExplanations.load"):
        geh.LocalExplanation.load(path)
    assert len(geh.LocalExplanations.load(tmp_path / "one.npz")) == 1


def test_an_account_of_one_unit_has_no_pairs_to_save(tmp_path):
    local = point_explainer(lambda x: x[:, 0] ** 2).explain_row(torch.tensor([3.0]), baseline=0, progress=False)
    check_same(geh.LocalExplanation.load(local.save(tmp_path / "one")), local)


def test_plots_of_a_loaded_account_are_drawn(tmp_path):
    local = point_explainer(lambda x: x[:, 0] * x[:, 1]).explain_row(torch.ones(2), baseline=0, progress=False)
    labels = geh.LocalExplanation.load(local.save(tmp_path / "local")).plot.waterfall().get_yticklabels()
    assert next(label.get_text() for label in labels) == "x0 × x1"


def test_files_of_something_else_are_refused(tmp_path):
    with pytest.raises(geh.GEHError, match="is not a file"):
        geh.LocalExplanation.load(tmp_path / "missing.npz")
    explainer = point_explainer(lambda x: x[:, 0] * x[:, 1])
    result = explainer.explain(random_points(20, 2), groups=1, progress=False).save(tmp_path / "result.npz")
    with pytest.raises(geh.GEHError, match=r"is not an intact file of saved accounts .*its format is not"):
        geh.LocalExplanation.load(result)


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("prediction", np.array([np.nan])),
        ("main_mean", np.zeros((1, 5))),
        ("n_draws", np.array([0])),
        ("steps", np.array([1.5])),
        ("names", ["a", "a"]),
        ("names", "ab"),
        ("accounts", [{"method": 1, "baseline": "", "place": "", "warnings": [], "smoothed": None}]),
        ("accounts", []),
        ("extra", np.zeros(1)),
    ],
)
def test_damaged_files_are_refused(tmp_path, name, value):
    local = point_explainer(lambda x: x[:, 0] * x[:, 1]).explain_row(torch.ones(2), baseline=0, progress=False)
    path = local.save(tmp_path / "local.npz")
    with np.load(path) as archive:
        arrays = dict(archive)
    about = json.loads(arrays["about"].tobytes())
    if name in about:
        about[name] = value
        arrays["about"] = np.frombuffer(json.dumps(about).encode(), dtype=np.uint8)
    else:
        arrays[name] = value
    np.savez(path, **arrays)
    with pytest.raises(geh.GEHError, match="is not an intact file of saved accounts"):
        geh.LocalExplanation.load(path)
