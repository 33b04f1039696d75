"""Settings of a result: a plain dict that users may extend, saved with the result."""

import json

from explaining import explain_point, uniform_points

import geh_explain as geh


def test_entries_of_the_user_are_kept_and_saved(tmp_path):
    result = explain_point(lambda x: x[:, 0] * x[:, 1], uniform_points(20, 2))
    result.settings["data set"] = {"name": "run 7", "rows": [1, 2]}
    loaded = geh.Interactions.load(result.save(tmp_path / "a.npz"))
    assert loaded.settings == result.settings
    again = geh.Interactions.load(loaded.save(tmp_path / "b.npz"))
    assert again.settings["data set"] == {"name": "run 7", "rows": [1, 2]}


def test_settings_are_the_record_as_values_that_json_can_hold():
    result = explain_point(lambda x: x[:, 0] * x[:, 1], uniform_points(20, 2), seed=3)
    assert json.loads(json.dumps(result.settings)) == result.settings
    assert result.settings == result.record.to_settings()
    assert type(result.settings["torch"]) is str  # as in a loaded result, not a subclass that compares versions
    assert (result.settings["seed"], result.record.seed) == (3, 3)
