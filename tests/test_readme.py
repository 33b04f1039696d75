"""The code blocks of README.md and docs/ run as printed, and print what they say."""

import re
from pathlib import Path

import matplotlib
import pytest

ROOT = Path(__file__).parents[1]


def blocks(path: Path, language: str) -> list[str]:
    return re.findall(rf"^```{language}\n(.*?)^```", path.read_text(encoding="utf8"), re.DOTALL | re.MULTILINE)


def numbers(text: str) -> list[float]:
    return [float(number) for number in re.findall(r"-?\d+\.\d+(?:e-?\d+)?", text)]


def test_the_readme_runs_as_printed(
    capsys: pytest.CaptureFixture[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr("tqdm.std.tqdm.monitor_interval", 0)
    matplotlib.use("Agg")
    namespace: dict[str, object] = {}
    for block in blocks(ROOT / "README.md", "python"):
        exec(compile(block, "README.md", "exec"), namespace)
    printed = capsys.readouterr().out
    shown = "".join(blocks(ROOT / "README.md", "text"))
    assert [line.split()[1:3] for line in printed.splitlines()[2:4]] == [["x0", "x1"], ["x1", "x7"]]
    assert printed.splitlines()[0] == shown.splitlines()[0]
    # Training in float32 is not the same to the last digit on every machine.
    assert numbers(printed) == pytest.approx(numbers(shown), rel=0.05, abs=0.05)


def test_the_page_on_bayesian_networks_runs_as_printed(capsys: pytest.CaptureFixture[str]) -> None:
    namespace: dict[str, object] = {}
    for block in blocks(ROOT / "docs" / "bayesian.md", "python"):
        exec(compile(block, "bayesian.md", "exec"), namespace)
    printed = capsys.readouterr().out
    assert printed.splitlines()[1].split()[1:3] == ["x0", "x1"]
    assert "Diagnosis(regression, 30 draws" in printed


def test_the_page_on_hidden_units_runs_as_printed(capsys: pytest.CaptureFixture[str]) -> None:
    matplotlib.use("Agg")
    namespace: dict[str, object] = {}
    for block in blocks(ROOT / "docs" / "hidden_units.md", "python"):
        exec(compile(block, "hidden_units.md", "exec"), namespace)
    assert re.fullmatch(r"(odd|even), [5-9] of 9\n", capsys.readouterr().out)


def test_the_page_on_permutation_tests_runs_as_printed(
    capsys: pytest.CaptureFixture[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    pytest.importorskip("distributed")
    matplotlib.use("Agg")
    monkeypatch.chdir(tmp_path)
    # Processes find what they are to do by the module's name.
    namespace: dict[str, object] = {"__name__": "__main__"}
    for block in blocks(ROOT / "docs" / "permutation.md", "python"):
        exec(compile(block, "permutation.md", "exec"), namespace)
    printed = capsys.readouterr().out.split()
    assert printed[-4:-2] == ["x0", "x1"]
    assert float(printed[-1]) == 0.05


def test_the_tour_of_pictures_runs_as_printed_and_every_picture_shows_something(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.syspath_prepend(ROOT / "docs")
    import pictures

    made = pictures.draw(tmp_path)
    assert len(made) == 11
    for path in made:
        shown, kept = (
            matplotlib.image.imread(folder / path.relative_to(tmp_path)) for folder in (tmp_path, ROOT / "docs")
        )
        assert shown.shape == kept.shape
        assert shown[..., :3].std() > 0.05
    assert (tmp_path / "friedman.html").stat().st_size > 900_000
