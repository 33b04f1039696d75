"""The study of yardsticks: functions and their truth, closed forms, peers on known answers, records and page."""

from itertools import combinations

import numpy as np
import pandas as pd
import pytest
import torch
from torch import nn

from studies import yardsticks
from studies.__main__ import main
from studies.yardsticks import archipelago, diamond, effector, nid, ours, parts, peers, summary, verdicts
from studies.yardsticks.functions import DIAMOND, NID, mixed_differences

BOTH = [pytest.param(function, id=f"{suite}-{name}") for suite, functions in (("NID", NID), ("Diamond", DIAMOND))
        for name, function in functions.items()]  # fmt: skip


@pytest.mark.parametrize("function", BOTH)
def test_the_printed_formula_is_the_function(function):
    words = "pi sqrt arcsin log exp arctan maximum sin arccos tanh sinh cos abs"
    names = {word: getattr(np, word) for word in words.split()}
    x = function.draw(200, np.random.default_rng(1))
    names |= {f"x{column + 1}": x[:, column] for column in range(10)}
    np.testing.assert_allclose(function(x), eval(function.formula, {"__builtins__": {}}, names), rtol=1e-12)


@pytest.mark.parametrize("function", NID.values(), ids=NID)
def test_listed_pairs_are_those_that_interact_on_the_domain(function):
    np.testing.assert_array_equal(function.listed_pairs(), function.true_pairs())


def test_the_gap_between_true_and_other_pairs_is_far_above_rounding():
    first, second = np.triu_indices(10, 1)
    for function in (*NID.values(), *DIAMOND.values()):
        strength, truth = mixed_differences(function)[first, second], function.true_pairs()
        assert strength[truth].min() > 1e-3
        assert strength[~truth].max() < 1e-14


def test_two_pairs_of_diamond_do_not_interact_between_0_and_1():
    first, second = np.triu_indices(10, 1)
    wrong = {
        (name, int(first[pair]) + 1, int(second[pair]) + 1)
        for name, function in DIAMOND.items()
        for pair in np.flatnonzero(function.listed_pairs() != function.true_pairs())
    }
    assert wrong == {("F5", 6, 7), ("F7", 3, 6)}


def test_irrelevant_columns_interact_with_nothing():
    function = DIAMOND["F8"]
    x = function.draw(50, np.random.default_rng(0), irrelevant=3)
    np.testing.assert_array_equal(function(x), function(x[:, :10]))
    assert x.shape == (50, 13)
    second = np.triu_indices(13, 1)[1]
    truth = function.true_pairs(13)
    assert truth.sum() == function.true_pairs().sum()
    assert second[truth].max() < 10


@pytest.mark.parametrize("name", archipelago.DEFINITIONS)
def test_true_pairs_of_archipelago_are_those_of_some_mixed_difference(name):
    """Differences between row and baseline, for pairs within the others at the row or at the baseline."""
    found = np.zeros((40, 40), dtype=bool)
    for start in (torch.ones(40), -torch.ones(40)):
        moves = [()] + [(i,) for i in range(40)] + list(combinations(range(40), 2))
        rows = start.repeat(len(moves), 1)
        for row, move in zip(rows, moves, strict=True):
            row[list(move)] *= -1
        values = dict(zip(moves, archipelago.evaluate(name, rows).tolist(), strict=True))
        for i, j in combinations(range(40), 2):
            found[i, j] |= values[i, j] - values[(i,)] - values[(j,)] + values[()] != 0
    np.testing.assert_array_equal(found[np.triu_indices(40, 1)], archipelago.true_pairs(name))


def test_both_directions_find_every_pair_of_archipelago():
    rows = archipelago.run(seed=3, quick=True)
    both = [row for row in rows if row["method"] == "both directions"]
    assert [row["auc"] for row in both] == [1.0] * 4
    # 1 + 40 + 780 for each direction, and one evaluation or more of row and baseline themselves.
    assert all(2 * 821 <= row["evaluations"] <= 2 * 840 for row in both)
    one = {row["function"]: row["auc"] for row in rows if row["method"] == "from the baseline"}
    assert one["F1"] == 1
    assert one["F2"] == 0.5


@pytest.mark.parametrize("name", effector.CASES)
def test_closed_forms_are_those_of_small_differences(name):
    """Central differences count a jump by its size times the density, if their steps are small."""
    case = effector.CASES[name]
    x = torch.as_tensor(effector.draw(name, 400_000, np.random.default_rng(0)))
    step = 0.002 if name == "correlated" else 0.05
    for i, j in combinations(range(x.shape[1]), 2):
        total = torch.zeros(len(x), dtype=torch.double)
        for a in (-1, 1):
            for b in (-1, 1):
                moved = x.clone()
                moved[:, i] += a * step
                moved[:, j] += b * step
                total += a * b * case.compute(moved)
        mean = float(total.abs().mean()) / (4 * step**2)
        # A product of two jumps is met by few rows.
        assert mean == pytest.approx(case.eah.get((i, j), 0.0), rel=0.06, abs=1e-6)


def test_borders_of_the_cases_separate_the_signs():
    x = effector.draw("general", 1000, np.random.default_rng(0))
    np.testing.assert_array_equal(effector.CASES["general"].sign(x), 2 * x[:, 1] < 0)


def test_shares_of_false_discoveries_and_power_by_hand():
    found, truth = np.array([1, 1, 1, 0, 0], bool), np.array([1, 0, 1, 1, 1], bool)
    assert diamond.compare(found, truth) == {"found": 3, "fdp": pytest.approx(1 / 3), "power": 0.5}
    assert diamond.compare(np.zeros(5, bool), truth)["fdp"] == 0


def product(x):
    """Return 4 x0 x2 + x1, in which one of three pairs interacts."""
    return 4 * x[:, 0] * x[:, 2] + x[:, 1]


def test_the_h_statistic_is_0_without_interaction():
    x = np.random.default_rng(0).uniform(-1, 1, (200, 3))
    scores = peers.h_statistic(product, x, 0)
    assert scores[1] > 0.1
    np.testing.assert_allclose(scores[[0, 2]], 0, atol=1e-10)


@pytest.mark.parametrize("peer", [peers.nid, peers.nid_main, peers.lasso], ids=lambda peer: peer.__name__)
def test_peers_of_the_same_rows_find_a_product(peer):
    x = np.random.default_rng(0).uniform(-1, 1, (1500, 3))
    assert peer(x, product(x), 0).argmax() == 1


def test_networks_of_main_effects_are_sums_over_features():
    torch.manual_seed(0)
    effects, x = peers._MainEffects(3), torch.randn(5, 3)
    hidden = x[:, 1:2]
    for weight, bias in zip(effects.weights, effects.biases, strict=False):
        hidden = torch.relu(hidden @ weight[1] + bias[1])
    others = x.clone()
    others[:, 1] = 0
    at_zero = torch.zeros(5, 1)
    for weight, bias in zip(effects.weights, effects.biases, strict=False):
        at_zero = torch.relu(at_zero @ weight[1] + bias[1])
    change = (hidden - at_zero) @ effects.weights[-1][1]
    torch.testing.assert_close(effects(x) - effects(others), change)


def test_a_missing_package_is_named():
    with pytest.raises(peers.GEHRuntimeError, match=r"needs no_such_package .*geh-explain\[study-yardsticks\]"):
        peers.import_package("no_such_package")


class Known(nn.Module):
    """A network that has learned F8, in place of one that takes seconds to fit."""

    def forward(self, x):
        exponent = torch.stack([x[:, 2] + x[:, 4] + x[:, 5], x[:, 2] + x[:, 3] + x[:, 4] + x[:, 6]])
        rest = torch.sin(x[:, 6] * torch.sin(x[:, 7] + x[:, 8])) + torch.acos(0.9 * x[:, 9])
        return x[:, 0] * x[:, 1] + (2**exponent).sum(dim=0) + rest


@pytest.fixture
def known(monkeypatch):
    monkeypatch.setattr(ours, "fit_network", lambda x, y, seed: Known())
    monkeypatch.setattr(ours, "POINTS", 300)


def test_a_network_that_is_the_truth_ranks_all_pairs_right(known):
    rows = {row["method"]: row for row in nid.run_case("F8 2000 0.5", 0, quick=True)}
    assert rows["EAH"]["auc"] == 1
    assert rows["H-statistic"]["auc"] == 1
    assert rows["supported, pairwise groups"]["auc"] > 0.95
    assert rows["supported, default groups"]["auc"] > 0.95
    assert rows["EAH"]["error"] < 1e-10
    assert len(rows["EAH"]["scores"]) == 45


def test_noise_leaves_the_features_as_they_are():
    clean, noisy = (nid.draw("F3", 500, noise, seed=1) for noise in (0.0, 0.5))
    np.testing.assert_array_equal(clean[0], noisy[0])
    np.testing.assert_array_equal(clean[1], noisy[2])
    assert np.std(noisy[1] - noisy[2]) == pytest.approx(0.5 * clean[1].std(), rel=0.1)


def test_cases_of_all_seeds_come_first_and_others_have_few_seeds():
    seeds = parts.choose_seeds(("nid", "diamond"), None, quick=False)
    tasks = parts.tasks(seeds, quick=False)
    assert len(tasks) == 10 * (10 + 3 * nid.FEWER_SEEDS) + 10 * 10
    first = tasks[:200]
    assert {case.split()[1:] == ["10000", "0"] for name, case, _ in first if name == "nid"} == {True}
    assert {seed for _, _, seed in tasks[200:]} == set(seeds["nid"][: nid.FEWER_SEEDS])
    assert set(seeds["nid"]).isdisjoint(seeds["diamond"])


def test_diamond_finds_true_pairs_of_a_network_that_is_the_truth(known):
    corrected = next(row for row in diamond.run_case("F8", 0, quick=True) if row["truth"] == "corrected")
    assert corrected["power"] > 0.9
    assert len(corrected["p_value"]) == 66


def test_the_study_resumes_and_writes_its_page(known, tmp_path, capsys, monkeypatch):
    monkeypatch.setattr(parts, "QUICK_NAMES", ("nid", "archipelago"))
    monkeypatch.setattr(nid, "_QUICK_FUNCTIONS", ("F8",))
    assert list(yardsticks.run(tmp_path, quick=True, workers=1))[:2] == [
        "yardsticks: 0 of 5 cases",
        "yardsticks: 1 of 5 cases",
    ]
    assert {path.name for path in tmp_path.glob("*.jsonl")} == {
        f"yardsticks_quick_{name}_0.jsonl" for name in ("nid", "archipelago")
    }
    text = (tmp_path / "studies" / "yardsticks.md").read_text(encoding="utf-8")
    assert "| both directions | 1.000 | 1.000 | 1.000 | 1.000 |" in text
    assert "## Diamond's setting" not in text
    assert "not the result of the study" in text
    area = pd.read_csv(tmp_path / "studies" / "yardsticks_nid.csv").set_index("method").loc[ours.SCORES[0], "auc"]
    assert f"| NID, 2,000 rows, no noise, 1 seed: mean AUC at least 0.96 | {area:.3f} |" in text
    assert (tmp_path / "images" / "yardsticks.png").stat().st_size > 5000
    options = ["yardsticks", "--quick", "--workers", "1", "--output", str(tmp_path)]
    assert main([*options, "--parts", "archipelago", "--seeds", "0"]) == 0
    assert capsys.readouterr().out.startswith("yardsticks: 4 of 4 cases\n")
    assert main([*options, "--parts", "nothing"]) == 1
    assert "parts: 'nothing' is unknown; use nid, diamond" in capsys.readouterr().err
    assert main(["vision", "--seeds", "1"]) == 1


def test_cases_of_published_tables_are_not_run_again(tmp_path, monkeypatch):
    rest = {"method": "both directions", "auc": 1.0, "evaluations": 1660}
    monkeypatch.setattr(archipelago, "run_case", lambda case, seed, quick: [{"function": case, "seed": seed, **rest}])
    seeds = (100, 101)
    run = {"names": ("archipelago",), "workers": 1}
    first = tmp_path / "first"
    lines = list(yardsticks.run(first, tmp_path, seeds=seeds[:1], **run))
    assert lines[:2] == ["yardsticks: 0 of 4 cases", "yardsticks: 1 of 4 cases"]
    # Another machine has the tables and no records.
    lines = list(yardsticks.run(tmp_path / "second", tmp_path, seeds=seeds, **run))
    assert lines[0] == "yardsticks: 4 of 8 cases"
    table = pd.read_csv(tmp_path / "studies" / "yardsticks_archipelago.csv")
    assert table.groupby(["function", "seed"]).size().to_dict() == {
        (name, seed): 1 for name in archipelago.DEFINITIONS for seed in seeds
    }
    # Records of this machine come first.
    assert next(iter(yardsticks.run(first, tmp_path, seeds=seeds, **run))) == "yardsticks: 8 of 8 cases"


@pytest.mark.parametrize("case", ["F10 30000 0.5", "F2 10000 0"])
def test_rows_of_a_table_tell_their_case(case):
    name, rows, noise = case.split()
    row = {"function": name, "rows": int(rows), "noise": float(noise)}
    assert nid.case_of(row) == case
    assert case in nid.cases(quick=False)


def taylor_table(own, auto):
    """Return the records of two radii, as the part of SmoothHess gives them."""
    rows = []
    for radius in (0.5, 1.0):
        for method, pmse, more in (
            ("no Hessian", 4.0, {}),
            ("SmoothHess", 2.0, {"pairs": 1000}),
            ("SmoothHess", 1.0, {"pairs": 50_000}),
            ("Radius", own, {"gradients": 30.0, "gradients_in_batch": 200.0}),
            ("auto", auto, {}),
        ):
            row = {"seed": 100, "radius": radius, "method": method, "pmse": pmse, "relative": pmse / 4}
            rows.append({**row, **more})
    return pd.DataFrame(rows)


@pytest.mark.parametrize(
    ("own", "auto", "words"), [(0.9, 3.0, "met met missed met"), (1.1, 5.0, "missed met missed missed")]
)
def test_expansions_are_judged_by_smoothhess_with_the_most_pairs(own, auto, words):
    from studies.yardsticks.page import build_page

    tables = {"taylor": taylor_table(own, auto)}
    assert [verdict[2].strip("*") for verdict in verdicts.verdicts(tables)] == words.split()
    text = build_page(tables)
    assert "not the result of the study" not in text
    missing = "the suite of NID; Diamond's setting; Archipelago's functions; effector's cases"
    assert f"**Not run yet:** {missing}; SmoothHess's P-MSE: 2 of 3 seeds." in " ".join(text.split())
    assert "| SmoothHess with 50,000 pairs | 0.250 | 0.250 |  |  |" in text
    assert f"| Radius | {own / 4:.3f} | {own / 4:.3f} | 30 | 200 |" in text


def test_the_worst_function_decides_about_diamond():
    rows = [
        {"function": name, "seed": seed, "truth": "corrected", "fdp": fdp, "power": power}
        for name, fdp, power in (("F1", 0.1, 0.9), ("F2", 0.3, 0.4))
        for seed in range(3)
    ]
    found = list(verdicts.verdicts({"diamond": pd.DataFrame(rows)}))
    assert [(verdict[1], verdict[2]) for verdict in found] == [
        ("0.300 ± 0.000 (F2)", "**missed**"),
        ("0.400 (F2)", "**missed**"),
    ]


def test_the_lead_over_the_best_peer_is_that_of_the_same_seeds():
    areas = {ours.SCORES[0]: (0.9, 1.0, 1.0), "SHAP": (0.8, 0.94, 0.9), "Lasso": (0.1, 0.2, 0.1)}
    assert judge(areas) == ("0.967 against 0.880 (SHAP); difference 0.087 ± 0.013", "met")
    # Two standard errors are too few for three seeds, and for two more so.
    assert judge(areas | {"SHAP": (0.8, 0.98, 0.94)})[1] == "**not clear**"
    assert judge({method: values[:2] for method, values in areas.items()})[1] == "**not clear**"
    assert judge({method: values[:1] for method, values in areas.items()})[1] == "**not clear**"
    assert judge(areas | {"SHAP": (0.95, 1.05, 1.05)})[1] == "**missed**"


def judge(areas):
    """Return the verdict on the lead over the best peer, from areas by seed."""
    rows = [
        {"function": "F1", "rows": 10_000, "noise": 0.0, "seed": seed, "method": method, "auc": area}
        for method, values in areas.items()
        for seed, area in enumerate(values)
    ]
    return list(verdicts.verdicts({"nid": pd.DataFrame(rows)}))[-1][1:]


def test_means_over_seeds_have_standard_errors():
    assert str(summary.Mean.of(pd.Series([0.5]))) == "0.500"
    assert str(summary.Mean.of(pd.Series([0.4, 0.6, np.nan]))) == "0.500 ± 0.100"
