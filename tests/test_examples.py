"""Examples whose result is known: those of simulated data."""

import runpy
import sys
from pathlib import Path

import matplotlib

EXAMPLES = Path(__file__).parents[1] / "examples"


def test_epistatic_pairs_without_main_effects_are_found_and_no_other_pairs_are(monkeypatch, tmp_path):
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "argv", ["epistasis.py"])
    matplotlib.use("Agg")
    example = runpy.run_path(str(EXAMPLES / "epistasis.py"))
    matplotlib.pyplot.close("all")
    first, second = example["true_pairs"].sort(dim=1).values.T.tolist()
    blocks = set(zip([i // 20 for i in first], [j // 20 for j in second], strict=True))
    found = example["evidence"][example["evidence"]["significant"]]
    ends = ([int(name.removeprefix("SNP ")) // 20 for name in found[end]] for end in ("unit_i", "unit_j"))
    assert len(found) == len(blocks) == 5
    assert set(zip(*ends, strict=True)) == blocks
