"""Draw the images of pictures.md by running its code, and that of the README: ``make pictures``."""

import io
import os
import re
import runpy
import shutil
import tempfile
from pathlib import Path
from typing import Any

import matplotlib
import matplotlib.pyplot as plt

HERE = Path(__file__).parent
PAGE = HERE / "pictures.md"
#: Image of the README: the pairs of the first step of the tutorial, and a pair of hidden units of the second one.
README_IMAGE = HERE / "images" / "overview.png"
TUTORIAL = HERE.parent / "examples" / "tutorial"
_README_DPI = 80
#: Image of the report, which needs a browser.
REPORT_IMAGE = HERE / "images" / "page.png"
#: Headless browsers, the first one that is installed is used.
BROWSERS = ("chromium-headless-shell", "chromium")


def code_blocks() -> list[tuple[str, str | None]]:
    """Return the Python blocks of the page, each with the path of the image that follows it, if any."""
    text = PAGE.read_text(encoding="utf-8")
    parts = re.split(r"^```python\n(.*?)^```\n", text, flags=re.DOTALL | re.MULTILINE)[1:]
    blocks = []
    for code, after in zip(parts[::2], parts[1::2], strict=True):
        image = re.match(r"\s*!\[[^]]*\]\((images/plot_[^)]*)\)", after)
        blocks.append((code, image[1] if image else None))
    return blocks


def draw(folder: Path) -> list[Path]:
    """Run the page, save its images below ``folder``, and return their paths.

    A block with an image assigns ``axes`` or ``figure``. The report is written to the working directory.
    """
    matplotlib.use("Agg")
    namespace: dict[str, Any] = {"__name__": "pictures"}
    paths = []
    for code, image in code_blocks():
        # Removed, so that an image never shows the figure of an earlier block.
        namespace.pop("axes", None)
        namespace.pop("figure", None)
        exec(compile(code, str(PAGE), "exec"), namespace)
        if image is not None:
            figure = namespace["axes"].figure if "axes" in namespace else namespace["figure"]
            path = folder / image
            path.parent.mkdir(parents=True, exist_ok=True)
            figure.savefig(path, dpi=80)
            plt.close(figure)
            paths.append(path)
    return paths


def draw_readme(path: Path) -> None:
    """Save the image of the README, from the results of the first two steps of the tutorial."""
    table, vision = (runpy.run_path(str(TUTORIAL / name)) for name in ("step1_table.py", "step2_vision.py"))
    plt.close("all")
    gallery = vision["explainer"].interpret(vision["result"], vision["x"], pairs=1, k=6, ascent=False, progress=False)
    units = io.BytesIO()
    gallery.plot().savefig(units, dpi=_README_DPI)
    units.seek(0)
    picture = plt.imread(units)
    height, width = picture.shape[:2]
    figure = plt.figure(figsize=(width / _README_DPI, 4.6 + height / _README_DPI), dpi=_README_DPI)
    share = height / _README_DPI / figure.get_figheight()
    upper = figure.add_axes((0.19, share + 0.24, 0.77, 1 - share - 0.31))
    table["result"].plot.intervals(pairs=8, ax=upper)
    upper.set_title("Which inputs act together, and do held-out labels support it?", fontweight="bold")
    lower = figure.add_axes((0, 0, 1, share))
    lower.imshow(picture, aspect="auto", interpolation="none")
    lower.set_axis_off()
    slope = vision["result"].table()["slope"].iloc[0]
    lines = (
        "Which hidden units of a vision network act together, and what do they respond to?",
        f"The network learned the product of two digits. Held-out labels contain {slope:.2f} times this interaction.",
    )
    size = upper.title.get_fontsize()
    figure.text(0.5, share + 0.08, lines[0], ha="center", fontsize=size, fontweight="bold")
    figure.text(0.5, share + 0.03, lines[1], ha="center", fontsize=0.85 * size)
    figure.savefig(path, dpi=_README_DPI)
    plt.close(figure)


def screenshot(page: Path, image: Path) -> None:
    """Save a screenshot of an HTML page, once its charts are drawn."""
    from playwright.sync_api import sync_playwright

    browser_path = next(filter(None, map(shutil.which, BROWSERS)))
    with sync_playwright() as runner:
        browser = runner.chromium.launch(executable_path=browser_path, args=["--no-sandbox"])
        window = browser.new_page(viewport={"width": 1300, "height": 1000})
        window.goto(page.resolve().as_uri())
        window.wait_for_selector("html[data-ready=yes]")
        window.screenshot(path=image, full_page=True)
        browser.close()


if __name__ == "__main__":
    with tempfile.TemporaryDirectory() as scratch:
        os.chdir(scratch)
        for path in draw(HERE):
            print(path)
        draw_readme(README_IMAGE)
        screenshot(Path("friedman.html"), REPORT_IMAGE)
        print(README_IMAGE, REPORT_IMAGE, sep="\n")
