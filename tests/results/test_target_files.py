"""Results of several targets that are saved to a folder and loaded."""

import json

import pandas as pd
import pytest
import torch
from explaining import point_explainer, random_points

import geh_explain as geh


def results(targets="all"):
    def model(x):
        return torch.stack([x[:, 0] * x[:, 1] + x[:, 2], x[:, 1] * x[:, 2] ** 2 + x[:, 0], x[:, 0]], dim=1)

    options = {"target": "all"} if targets == "all" else {"targets": targets}
    explainer = point_explainer(model if targets != [(0, 1)] else lambda x: model(x)[:, None])
    return explainer.explain(random_points(20, 3), groups=2, progress=False, **options)


@pytest.mark.filterwarnings("ignore:.*exactly 0")  # the third output is a main effect
@pytest.mark.parametrize("targets", ["all", {"cat": 1, "dog": 0}, [(0, 1)]])
def test_all_targets_come_back_in_their_order(targets, tmp_path):
    saved = results(targets)
    path = saved.save(tmp_path / "made" if targets == "all" else tmp_path)
    loaded = geh.InteractionsByTarget.load(path)
    assert list(loaded) == list(saved)
    pd.testing.assert_frame_equal(loaded.table(), saved.table(), check_exact=True)
    assert repr(loaded) == repr(saved)


@pytest.mark.filterwarnings("ignore:.*exactly 0")
def test_a_later_save_replaces_an_earlier_one(tmp_path):
    results().save(tmp_path)
    results({"dog": 0}).save(tmp_path)
    assert list(geh.InteractionsByTarget.load(tmp_path)) == ["dog"]


@pytest.mark.parametrize(
    ("target", "file"), [("a", "../0.npz"), ("a", "/etc/0.npz"), (1.5, "0.npz"), (None, "0.npz"), ({"a": 1}, "0.npz")]
)
def test_damaged_folders_are_refused(tmp_path, target, file):
    results({"dog": 0}).save(tmp_path)
    index = tmp_path / "targets.json"
    about = json.loads(index.read_text())
    about["targets"][0] = {"target": target, "file": file}
    index.write_text(json.dumps(about))
    with pytest.raises(geh.GEHError, match="is not an intact index"):
        geh.InteractionsByTarget.load(tmp_path)
    index.unlink()
    with pytest.raises(geh.GEHError, match=r"holds no saved results of several targets: it has no targets\.json"):
        geh.InteractionsByTarget.load(tmp_path)
