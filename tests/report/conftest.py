"""A browser for the tests of the report page."""

import shutil

import pytest
from synthetic_results import random_result

BROWSER = next(filter(None, map(shutil.which, ("chromium-headless-shell", "chromium"))), None)


@pytest.fixture(scope="package")
def browser():
    playwright = pytest.importorskip("playwright.sync_api", reason="no playwright: pages are not tried in a browser")
    if BROWSER is None:
        pytest.skip("no chromium: install Debian's chromium-headless-shell")
    with playwright.sync_playwright() as runner:
        browser = runner.chromium.launch(executable_path=BROWSER, args=["--no-sandbox"])
        yield browser
        browser.close()


@pytest.fixture
def opened(browser):
    """Return a function that opens a file; afterwards there were no errors, and no request but for the file."""
    wrong, asked, contexts = [], [], []

    def opened(path, width=1200, **options):
        viewport = {"width": width, "height": 900}
        context = browser.new_context(viewport=viewport, accept_downloads=True, **options)
        contexts.append(context)
        page = context.new_page()
        page.on("console", lambda message: wrong.append(message.text) if message.type != "log" else None)
        page.on("pageerror", lambda error: wrong.append(str(error)))
        page.on("request", lambda request: asked.append(request.url))
        page.goto(path.as_uri())
        page.wait_for_selector("html[data-ready=yes]", timeout=20_000)
        return page

    yield opened
    for context in contexts:
        context.close()
    assert wrong == []
    assert [url for url in asked if not url.startswith("data:")] == [url for url in asked if url.endswith(".html")]
    assert len(asked) >= len(contexts)


@pytest.fixture(scope="package")
def result():
    """Return a result of six units with awkward names, of which some pairs are stable."""
    return random_result(6, groups=3, names=NAMES, noise=0.9)


@pytest.fixture
def page(opened, result, tmp_path):
    return opened(result.report(tmp_path / "page.html"))


EVIL = "<script>document.title = 'evil'</script>"
NAMES = [EVIL, "<img src=x onerror=\"document.title='evil'\">", "wind speed", "a × b", "temperature", "hour"]
