"""Make the pictures of pictures.md, by running it: ``make pictures``."""

import re
import shutil
import tempfile
from pathlib import Path
from typing import Any

import matplotlib
import matplotlib.pyplot as plt

HERE = Path(__file__).parent
PAGE = HERE / "pictures.md"


def steps() -> list[tuple[str, str | None]]:
    """Return the page's code blocks, each with the picture that comes after it, if any."""
    text = PAGE.read_text(encoding="utf-8")
    parts = re.split(r"^```python\n(.*?)^```\n", text, flags=re.DOTALL | re.MULTILINE)[1:]
    found = []
    for code, after in zip(parts[::2], parts[1::2], strict=True):
        picture = re.match(r"\s*!\[[^]]*\]\((images/plot_[^)]*)\)", after)
        found.append((code, picture[1] if picture else None))
    return found


def draw(folder: Path) -> list[Path]:
    """Run the page, and save each picture below ``folder``."""
    matplotlib.use("Agg")
    names: dict[str, Any] = {"__name__": "pictures"}
    made = []
    for code, picture in steps():
        names.pop("axes", None), names.pop("figure", None)
        exec(compile(code, str(PAGE), "exec"), names)
        if picture is not None:
            figure = names["axes"].figure if "axes" in names else names["figure"]
            (folder / picture).parent.mkdir(parents=True, exist_ok=True)
            figure.savefig(folder / picture, dpi=80)
            made.append(folder / picture)
            plt.close(figure)
    return made


def photograph(page: Path, picture: Path) -> None:
    """Save how the browser shows a page."""
    from playwright.sync_api import sync_playwright

    browser_path = next(filter(None, map(shutil.which, ("chromium-headless-shell", "chromium"))))
    with sync_playwright() as runner:
        browser = runner.chromium.launch(executable_path=browser_path, args=["--no-sandbox"])
        window = browser.new_page(viewport={"width": 1200, "height": 1150})
        window.goto(page.resolve().as_uri())
        window.wait_for_selector("html[data-ready=yes]")
        window.screenshot(path=picture)
        browser.close()


if __name__ == "__main__":
    import os

    with tempfile.TemporaryDirectory() as scratch:
        os.chdir(scratch)
        for path in draw(HERE):
            print(path)
        photograph(Path("friedman.html"), HERE / "images" / "page.png")
        print(HERE / "images" / "page.png")
