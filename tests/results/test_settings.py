"""Settings of a result: a plain dict that users may extend, saved with the result."""

import json

import torch

import geh_explain as geh


def explain(**options):
    explainer = geh.GEHExplainer(lambda x: x[:, 0] * x[:, 1], posterior=geh.posterior.PointEstimate())
    return explainer.explain(torch.rand(20, 2), groups=1, progress=False, **options)


def test_entries_of_the_user_are_kept_and_saved(tmp_path):
    result = explain()
    result.settings["data set"] = {"name": "run 7", "rows": [1, 2]}
    loaded = geh.Interactions.load(result.save(tmp_path / "a.npz"))
    assert loaded.settings == result.settings
    again = geh.Interactions.load(loaded.save(tmp_path / "b.npz"))
    assert again.settings["data set"] == {"name": "run 7", "rows": [1, 2]}


def test_settings_are_the_record_as_values_that_json_can_hold():
    result = explain(seed=3)
    assert json.loads(json.dumps(result.settings)) == result.settings
    assert result.settings == result.record.to_settings()
    assert (result.settings["seed"], result.record.seed) == (3, 3)
