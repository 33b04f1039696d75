"""The code blocks of README.md and docs/ run as printed, and print what they say."""

import copy
import functools
import re
from pathlib import Path

import matplotlib
import matplotlib.pyplot as plt
import pytest

from geh_explain import demo

ROOT = Path(__file__).parents[1]
PAGES = sorted(
    str(path.relative_to(ROOT))
    for path in [ROOT / "README.md", ROOT / "CONTRIBUTING.md", *(ROOT / "docs").rglob("*.md")]
    if "```python" in path.read_text(encoding="utf8") and path.name != "pictures.md"  # which has a test of its own
)
#: What a page may need that not every environment has.
NEEDS = {
    "vision.md": "efficientnet_lite_pytorch",
    "permutation.md": "distributed",
    "comparison.md": "shap",
    "ecosystem.md": "xarray",
}


def steps(path: Path) -> list[tuple[str, str | None]]:
    """Return the page's code blocks, each with the output printed right after it, if any."""
    text = path.read_text(encoding="utf8")
    found = re.findall(r"^```python\n(.*?)^```\n(?:\s*^```text\n(.*?)^```)?", text, re.DOTALL | re.MULTILINE)
    return [(code, shown or None) for code, shown in found]


def head(text: str) -> list[list[str]]:
    return [[word for word in line.split() if not is_number(word)] for line in text.splitlines()[:3]]


def numbers(text: str) -> list[float]:
    return [float(word) for word in text.split() if is_number(word)]


def is_number(word: str) -> bool:
    return re.fullmatch(r"-?\d+\.\d+(e-?\d+)?", word) is not None


@functools.cache
def trained_once(seed: int = 0):
    return demo_friedman(seed, progress=False)


demo_friedman = demo.friedman


@pytest.mark.filterwarnings("default")  # as a reader would see them
@pytest.mark.parametrize("page", PAGES)
def test_a_page_runs_as_printed(page, capsys, tmp_path, monkeypatch):
    pytest.importorskip(NEEDS.get(Path(page).name, "geh_explain"))
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr("tqdm.std.tqdm.monitor_interval", 0)
    monkeypatch.setattr(demo, "friedman", lambda seed=0, progress=True: copy.deepcopy(trained_once(seed)))
    matplotlib.use("Agg")
    # Processes find what they are to do by the module's name.
    namespace: dict[str, object] = {"__name__": "__main__"}
    for code, shown in steps(ROOT / page):
        exec(compile(code, page, "exec"), namespace)
        printed = capsys.readouterr().out
        if shown is not None:
            # Training in float32 is not the same to the last digit on every machine: the head of a table is.
            assert head(printed) == head(shown)
            assert numbers(printed) == pytest.approx(numbers(shown), rel=0.05, abs=0.05)
    plt.close("all")


def test_the_tour_of_pictures_runs_as_printed_and_every_picture_shows_something(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    monkeypatch.syspath_prepend(ROOT / "docs")
    import pictures

    made = pictures.draw(tmp_path)
    assert len(made) == 15
    for path in made:
        shown, kept = (
            matplotlib.image.imread(folder / path.relative_to(tmp_path)) for folder in (tmp_path, ROOT / "docs")
        )
        assert shown.shape == kept.shape
        assert shown[..., :3].std() > 0.05
    assert (tmp_path / "friedman.html").stat().st_size > 900_000


def test_every_page_is_found_from_the_first_and_no_link_is_broken():
    pages = {path.relative_to(ROOT / "docs") for path in (ROOT / "docs").rglob("*.md")}
    named = re.findall(r"^([\w/]+)$", (ROOT / "docs" / "index.md").read_text(), re.MULTILINE)
    named += [f"studies/{name}" for name in re.findall(r"^(\w+)$", (ROOT / "docs/studies/index.md").read_text(), re.M)]
    assert {Path(f"{name}.md") for name in named} - {
        Path("gallery/tutorial/index.md"),
        Path("gallery/index.md"),
    } == pages - {Path("index.md")}
    for path in [ROOT / "README.md", ROOT / "CONTRIBUTING.md", *(ROOT / "docs").rglob("*.md")]:
        for link in re.findall(r"\]\(([^)#:\s]+)[^):]*\)", path.read_text(encoding="utf8")):
            assert (path.parent / link).exists(), f"{path.name} links to {link}"
