"""Examples whose result is known: those of simulated data."""

import runpy
import sys
from pathlib import Path

import matplotlib

EXAMPLES = Path(__file__).parents[1] / "examples"


def run(name, monkeypatch, folder):
    """Run an example in a folder, and return its variables."""
    monkeypatch.chdir(folder)
    monkeypatch.setattr(sys, "argv", [name])
    matplotlib.use("Agg")
    variables = runpy.run_path(str(EXAMPLES / name))
    matplotlib.pyplot.close("all")
    return variables


def test_the_first_step_of_the_tutorial_finds_the_two_simulated_pairs(monkeypatch, tmp_path):
    step = run("tutorial/step1_table.py", monkeypatch, tmp_path)
    table = step["result"].table()
    found = table.loc[table["significant"], ["unit_i", "unit_j"]]
    assert found.values.tolist() == [["area", "insulation"], ["south windows", "shade"]]
    effects = step["by_shade"].regions("south windows", "shade")["mean"]
    assert effects["shade"] > effects["sun"] > 0


def test_the_second_step_of_the_tutorial_finds_pairs_of_the_left_and_the_right_digit(monkeypatch, tmp_path):
    """The labels are products of the two digits."""
    step = run("tutorial/step2_vision.py", monkeypatch, tmp_path)
    strongest = step["result"].top(4)
    sides = [{name.split()[0] for name in pair} for pair in strongest[["unit_i", "unit_j"]].values]
    assert sides == 4 * [{"left", "right"}]
    assert strongest["significant"].all()


def test_epistatic_pairs_without_main_effects_are_found_and_no_other_pairs_are(monkeypatch, tmp_path):
    example = run("epistasis.py", monkeypatch, tmp_path)
    first, second = example["true_pairs"].sort(dim=1).values.T.tolist()
    blocks = set(zip([i // 20 for i in first], [j // 20 for j in second], strict=True))
    found = example["evidence"][example["evidence"]["significant"]]
    ends = ([int(name.removeprefix("SNP ")) // 20 for name in found[end]] for end in ("unit_i", "unit_j"))
    assert len(found) == len(blocks) == 5
    assert set(zip(*ends, strict=True)) == blocks
