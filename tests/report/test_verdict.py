"""The verdict: what it says first, in each state of knowledge, and what it calls the groups."""

import re

import numpy as np
import pytest
import torch
from explaining import point_explainer
from synthetic_results import evidence_result, partial_result, random_result

import geh_explain as geh
from geh_explain.groups.group_info import GroupInfo
from geh_explain.report.names import cut_names
from geh_explain.report.verdict import give_verdict, list_facts
from geh_explain.run.record import RunRecord
from geh_explain.scores.draws import Draws
from geh_explain.units import PairSet


def verdict(result, **options):
    return give_verdict(result, result.decisions(**options))


def test_with_evidence_it_says_which_pairs_the_labels_support():
    result = evidence_result(random_result(3), n_rows=700)
    best = result.table().iloc[0]
    first, second, third = verdict(result)
    assert first == "1 of 3 pairs is supported by held-out labels (false discovery rate 5 %): unit 0 × unit 2."
    assert (best.unit_i, best.unit_j, bool(best.significant)) == ("unit 0", "unit 2", True)
    interval = f"{best.low:.3g}–{best.high:.3g}"
    assert second == f"It scores {best['mean']:.3g} (95 % interval {interval}), positive in all groups."
    others = result.table()["mean"][1:].max()
    assert third == f"The other 2 pairs score at most {others:.3g}."
    assert verdict(result, fdr=1e-9)[0].startswith("None of 3 pairs is supported by held-out labels")
    # Pairs that were not tested do not count, and many names are left out.
    many = verdict(evidence_result(random_result(6), untested=2))[0]
    assert many.startswith("4 of 13 tested pairs are supported by held-out labels (false discovery rate 5 %): ")
    assert many.endswith(" and 1 more.")
    assert many.count("×") == 3


def test_without_evidence_it_says_what_is_stable_and_that_labels_are_needed():
    result = random_result(6, noise=0.9)
    count = int(result.table()["stable"].sum())
    assert re.fullmatch(
        rf"{count} of 15 pairs are stable in this network: .* and {count - 3} more; "
        "held-out labels are needed to claim more.",
        verdict(result)[0],
    )
    none = verdict(random_result(4, noise=50.0))
    assert none[0] == "None of 6 pairs is stable in this network; held-out labels are needed to claim more."
    assert none[1].startswith("The strongest pair, ")
    assert none[1].endswith(", with no clear sign.")
    only = verdict(random_result(2, noise=50.0))
    assert only[0] == "The only pair is not stable in this network; held-out labels are needed to claim more."
    assert only[1].startswith("It scores ")
    assert len(only) == 2


def test_one_draw_and_the_rule_of_the_paper_decide_nothing_about_the_data():
    draw = verdict(random_result(3, draws=1))
    assert draw[0] == (
        "3 pairs have scores but no intervals, as there is one draw of the network; "
        "held-out labels are needed to claim more."
    )
    assert "interval" not in draw[1]
    paper = verdict(evidence_result(random_result(3)), rule="interval")[0]
    assert "marked, as the 95 % interval of the score excludes 0 (paper's rule)" in paper
    assert "supported" not in paper


def described(signed, descriptions):
    """Return the result of one pair whose group means have the draws (K, M, 1), with descriptions of the groups."""
    draws, groups = Draws(signed, np.abs(signed).mean(axis=1)), [str(group) for group in range(signed.shape[1])]
    info = GroupInfo(descriptions=descriptions)
    return geh.Interactions(draws, np.arange(8) % len(groups), ["a", "b"], groups, RunRecord(), group_info=info)


@pytest.mark.parametrize(
    ("means", "descriptions", "words"),
    [
        ([3, -2], ["hour < 7 (96 %)", "no short description"], "positive where hour < 7, negative elsewhere"),
        ([3, -2], ["no short description", "hour >= 7 (79 %)"], "negative mostly where hour ≥ 7, positive elsewhere"),
        ([3, -2], None, "positive in 1 of 2 groups, negative in 1"),
        ([3, 0.001], ["hour < 7 (96 %)", "hour >= 7 (96 %)"], "positive where hour < 7, unclear elsewhere"),
        ([3, 2], ["hour < 7 (96 %)", "hour >= 7 (96 %)"], "positive in all groups"),
        ([-3], None, "negative"),
        ([3, -2, 1], None, "positive in 2 of 3 groups, negative in 1"),
    ],
)
def test_it_says_where_the_effect_is_positive(means, descriptions, words):
    noise = np.random.default_rng(0).normal(0, 0.05, (40, len(means), 1))
    result = described(noise + np.array(means)[:, None], descriptions)
    assert verdict(result)[1].endswith(f"), {words}.")


def test_the_third_sentence_is_the_share_once_it_is_known(tmp_path):
    explainer = point_explainer(lambda x: x[:, 0] * x[:, 1] + x[:, 2])
    x = torch.randn(300, 3, generator=torch.Generator().manual_seed(0))
    result = explainer.explain(x, groups=1, progress=False)
    assert verdict(result)[2] == "The other 2 pairs score at most 0."
    share = result.share(progress=False)
    assert verdict(result)[2] == f"I{share.describe()[1:]}."
    facts = dict(list_facts(result, result.decisions()))
    assert "Output's spread" not in facts
    result.report(tmp_path / "page.html")
    outputs = x[:, 0] * x[:, 1] + x[:, 2]
    assert result.output_std == pytest.approx(float(outputs.std(correction=0)), rel=1e-4)
    facts = dict(list_facts(result, result.decisions()))
    assert facts["Output's spread"] == f"standard deviation {result.output_std:.3g}"
    assert facts["Points"] == "300 in 1 group"


def test_facts_say_which_pairs_were_computed():
    result = partial_result(PairSet.touching([2], n_units=5))
    facts = dict(list_facts(result, result.decisions()))
    assert facts["Pairs"] == "4 of 10 pairs were computed: those of unit 2"
    assert facts["Evidence"] == "none"


def test_names_that_are_cut_stay_different_and_keep_the_place_where_they_differ():
    middle = [f"neighbourhood_type[{kind}]_in_the_first_quarter" for kind in ("inland", "island", "coast")]
    short = cut_names([*middle, "roof", "median_income_of_the_households"], 24)
    assert all(len(name) <= 24 for name in short)
    assert [kind in name for kind, name in zip(("nland", "sland", "coast"), short, strict=False)] == [True] * 3
    assert short[3:] == ["roof", "median_inco…e_households"]
    assert len(set(cut_names(["a" * 50, "a" * 51, "a" * 52], 24))) == 3
