"""The command ``python -m studies``: exit codes, what it passes on, and pages that match the code that writes them."""

import importlib
import re
from pathlib import Path

import pytest

from geh_explain import cli
from geh_explain.errors import GEHRuntimeError
from studies import mnist, real, simulated
from studies.__main__ import main
from studies.text import fill_paragraph

ROOT = Path(__file__).parents[2]


@pytest.mark.parametrize(
    ("study", "extra"),
    [(simulated, {}), (mnist, {"data": "files"}), (real, {"data": "files"})],
    ids=["simulated", "mnist", "real"],
)
def test_options_reach_the_study(monkeypatch, capsys, study, extra):
    calls = []

    def run(folder, docs, **options):
        calls.append((folder, docs, options))
        yield "a line"

    monkeypatch.setattr(study, "run", run)
    name = study.__name__.rpartition(".")[2]
    arguments = [name, "--quick", "--output", "out", "--docs", "pages", "--data", "files", "--workers", "3"]
    assert main(arguments) == 0
    assert capsys.readouterr().out == "a line\n"
    assert calls == [(Path("out"), Path("pages"), {"quick": True, "workers": 3, **extra})]


def failing(error):
    """Return a study that raises ``error`` after its first line."""

    def run(folder, docs, **options):
        yield "a line"
        raise error

    return run


def test_ctrl_c_says_how_to_resume_and_ends_with_130(monkeypatch, capsys):
    monkeypatch.setattr(simulated, "run", failing(KeyboardInterrupt()))
    assert main(["simulated"]) == 130
    assert capsys.readouterr().out == "a line\ninterrupted; the same command resumes\n"


def test_an_error_of_the_package_is_a_message_and_exit_code_1(monkeypatch, capsys):
    monkeypatch.setattr(simulated, "run", failing(GEHRuntimeError("2 of 3 tasks failed")))
    assert main(["simulated"]) == 1
    assert capsys.readouterr().err == "studies: 2 of 3 tasks failed\n"


@pytest.mark.parametrize("arguments", [[], ["unknown"], ["mnist", "--workers", "many"]], ids=str)
def test_wrong_arguments_end_with_the_usage(capsys, arguments):
    with pytest.raises(SystemExit) as ended:
        main(arguments)
    assert ended.value.code == 2
    assert "usage: python -m studies" in capsys.readouterr().err


def test_the_installed_command_has_no_studies(capsys):
    with pytest.raises(SystemExit) as ended:
        cli.main(["study", "simulated"])
    assert ended.value.code == 2
    assert "invalid choice: 'study'" in capsys.readouterr().err


@pytest.mark.parametrize("name", ["mnist", "real"])
def test_committed_pages_have_the_paragraphs_of_the_code(name):
    page = importlib.import_module(f"studies.{name}.page")
    written = (ROOT / "docs" / "studies" / f"{name}.md").read_text(encoding="utf-8")
    paragraphs = [text for key, text in vars(page).items() if re.fullmatch("_[A-Z]+", key) and isinstance(text, str)]
    assert len(paragraphs) >= 4
    for paragraph in paragraphs:
        assert fill_paragraph(paragraph) in written


def test_the_wheel_has_the_package_alone():
    setuptools = pytest.importorskip("setuptools")
    assert 'packages = { find = { include = ["geh_explain*"] } }' in (ROOT / "pyproject.toml").read_text(
        encoding="utf-8"
    )
    packages = setuptools.find_packages(str(ROOT), include=["geh_explain*"])
    assert {package.partition(".")[0] for package in packages} == {"geh_explain"}
