"""Times of figures and report pages: ``python -m benchmarks.plots`` (a browser is needed for the time to display)."""

import shutil
import tempfile
from collections.abc import Callable
from pathlib import Path
from time import perf_counter
from typing import Any

import matplotlib
import numpy as np

import geh_explain as geh
from geh_explain.run.record import RunRecord
from geh_explain.scores.draws import Draws


def random_result(units: int, draws: int, groups: int = 10) -> geh.Interactions:
    """Return a result with random scores."""
    rng = np.random.default_rng(0)
    pairs = units * (units - 1) // 2
    signed = rng.normal(rng.normal(size=pairs), 0.5, size=(draws, groups, pairs))
    labels, names = np.arange(1000) % groups, [f"unit {unit}" for unit in range(units)]
    return geh.Interactions(Draws(signed, np.abs(signed).mean(1)), labels, names, list("abcdefghij"), RunRecord())


def time_once(call: Callable[[], Any]) -> float:
    """Return the seconds of one call."""
    start = perf_counter()
    call()
    return perf_counter() - start


def display_time(path: Path) -> str:
    """Return the time until a browser has drawn the page and it reacts to input; "no browser" if there is none."""
    browser_path = next(filter(None, map(shutil.which, ("chromium-headless-shell", "chromium"))), None)
    if browser_path is None:
        return "no browser"
    from playwright.sync_api import sync_playwright

    with sync_playwright() as runner:
        browser = runner.chromium.launch(executable_path=browser_path, args=["--no-sandbox"])
        times = []
        for _ in range(3):
            page = browser.new_page()
            start = perf_counter()
            page.goto(path.as_uri())
            page.wait_for_selector("html[data-ready=yes]", timeout=60_000)
            times.append(perf_counter() - start)
            page.close()
        browser.close()
    return f"{min(times):.2f} s"


def main() -> None:
    """Print the times of all figures of 50 units, and of pages of 50 and 500 units."""
    matplotlib.use("Agg")
    import matplotlib.pyplot as plt

    result = random_result(50, 100)
    for name, arguments in {
        "heatmap": (),
        "intervals": (),
        "network": (),
        "regions": (0, 1),
        "draws": (),
    }.items():
        plot = getattr(result.plot, name)
        seconds = min(time_once(lambda: plot(*arguments).figure.canvas.draw()) for _ in range(3))  # noqa: B023
        print(f"{name}, 50 units: {seconds:.2f} s")
        plt.close("all")
    with tempfile.TemporaryDirectory() as folder:
        for units, draws in ((50, 100), (500, 20)):
            result, path = random_result(units, draws), Path(folder) / f"{units}.html"
            seconds = time_once(lambda: result.report(path))  # noqa: B023
            size = f"{path.stat().st_size / 1e6:.2f} MB"
            print(f"page, {units} units: built in {seconds:.2f} s, {size}, displayed in {display_time(path)}")


if __name__ == "__main__":
    main()
