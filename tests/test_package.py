"""The package as a whole: cost of the import, visible names, and the command line."""

import ast
import doctest
import importlib.metadata
import inspect
import re
import subprocess
import sys
from pathlib import Path

import pytest

import geh_explain as geh
from geh_explain import cli, demo

ROOT = Path(geh.__file__).parent.parent
HEAVY = ["pandas", "matplotlib", "captum", "torchvision", "scipy", "sklearn"]


def python(*arguments):
    """Run a fresh interpreter, in which nothing has been imported yet."""
    return subprocess.run(
        [sys.executable, *arguments], cwd=ROOT, capture_output=True, text=True, timeout=120, check=False
    )


IMPORT = f"""
import random, sys
import numpy, torch

def state():
    return torch.get_rng_state().tolist(), numpy.random.get_state()[1].tolist(), random.getstate()

before = state()
import geh_explain as geh
import geh_explain.cli
print("imported:", [name for name in {HEAVY} if name in sys.modules])
print("random state kept:", state() == before)
product = geh.GEHExplainer(lambda x: x[:, 0] * x[:, 1], posterior=geh.posterior.PointEstimate())
product.explain(torch.rand(9, 2), groups=1, progress=False).geh.mean
print("imported by explaining:", [name for name in ("pandas", "matplotlib", "captum") if name in sys.modules])
"""


def test_importing_and_explaining_say_nothing_and_import_only_what_they_need():
    done = python("-W", "error", "-c", IMPORT)
    assert (done.returncode, done.stderr) == (0, "")
    assert done.stdout.splitlines() == ["imported: []", "random state kept: True", "imported by explaining: []"]


def test_importing_the_package_alone_imports_nothing_else():
    code = "import sys, geh_explain; print([name for name in ('torch', 'numpy') if name in sys.modules])"
    done = python("-c", code)
    assert (done.returncode, done.stdout) == (0, "[]\n"), done.stderr


def test_an_unknown_name_is_no_attribute():
    with pytest.raises(AttributeError, match="no attribute 'GEHExplaner'"):
        geh.GEHExplaner  # noqa: B018


# What it shows


def public(module):
    return {name: getattr(module, name) for name in module.__all__}


def test_every_public_name_exists_once_and_is_documented():
    assert sorted(set(geh.__all__)) == sorted(geh.__all__)
    for name, value in public(geh).items():
        if name != "__version__":
            assert (inspect.getdoc(value) or "").strip(), f"{name} has no docstring"


CALLED_BY_USERS = {
    "GEHExplainer": geh.GEHExplainer,
    **{
        f"{module.__name__}.{name}": value
        for module in (geh.posterior, geh.units)
        for name, value in public(module).items()
        if inspect.isclass(value) and not inspect.isabstract(value) and not getattr(value, "_is_protocol", False)
    },
}


@pytest.mark.parametrize("name", CALLED_BY_USERS)
def test_a_class_that_users_call_has_an_example(name):
    """Pytest runs the examples themselves (--doctest-modules)."""
    examples = doctest.DocTestParser().get_examples(CALLED_BY_USERS[name].__doc__)
    assert examples
    assert examples[-1].want
    for example in examples:
        compile(example.source, name, "single")


@pytest.mark.parametrize(
    "value", [geh.GEHExplainer, geh.Interactions, geh.GroupChoice], ids=lambda value: value.__name__
)
def test_every_public_method_is_documented(value):
    methods = {name: method for name, method in vars(value).items() if not name.startswith("_")}
    undocumented = [name for name, method in methods.items() if not inspect.getdoc(method)]
    assert undocumented == []


def test_every_parameter_is_described():
    for function, documentation in (
        (geh.GEHExplainer.__init__, geh.GEHExplainer.__doc__),
        (geh.GEHExplainer.explain, geh.GEHExplainer.explain.__doc__),
    ):
        for name in list(inspect.signature(function).parameters)[1:]:
            assert re.search(rf"^\s*{name}\b", documentation, re.MULTILINE), f"{function.__qualname__}: {name}"


# Its version


def test_the_version_is_the_same_wherever_it_stands():
    assert re.fullmatch(r"\d+\.\d+\.\d+(\.?(a|b|rc|dev)\d+)?", geh.__version__)
    citation = (ROOT / "CITATION.cff").read_text()
    assert re.findall(r"^version: (\S+)$", citation, re.MULTILINE) == [geh.__version__]
    project = (ROOT / "pyproject.toml").read_text()
    assert 'version = { attr = "geh_explain._version.__version__" }' in project
    assert re.search(r'^version = "', project, re.MULTILINE) is None
    try:
        installed = importlib.metadata.version("geh-explain")
    except importlib.metadata.PackageNotFoundError:
        return  # run from the sources
    assert installed == geh.__version__


def test_it_says_that_it_is_typed():
    assert (ROOT / "geh_explain" / "py.typed").is_file()


# Its command line


def test_the_command_line_runs_as_a_module_and_knows_its_version():
    done = python("-m", "geh_explain.cli", "--version")
    assert (done.returncode, done.stdout, done.stderr) == (0, f"geh-explain {geh.__version__}\n", "")


@pytest.mark.parametrize(("arguments", "words"), [(["--help"], ["demo"]), (["demo", "--help"], ["--output", "--seed"])])
def test_the_command_line_helps(capsys, arguments, words):
    with pytest.raises(SystemExit) as ended:
        cli.main(arguments)
    assert ended.value.code == 0
    text = capsys.readouterr().out
    assert [word for word in words if word not in text] == []


def test_the_command_is_installed_under_its_name():
    assert 'geh-explain = "geh_explain.cli:main"' in (ROOT / "pyproject.toml").read_text()
    assert callable(cli.main)


@pytest.fixture
def demo_calls(monkeypatch):
    """Stand in for the demonstration, which takes a minute, and note how it is called."""
    calls = []

    def run(folder, seed=0, progress=True):
        calls.append((folder, seed))
        return ["a line", "another line"]

    monkeypatch.setattr(demo, "run", run)
    return calls


@pytest.mark.parametrize(
    ("arguments", "call"),
    [
        (["demo"], (Path("demo_output"), 0)),
        (["demo", "--seed", "3"], (Path("demo_output"), 3)),
        (["demo", "--output", "some/folder"], (Path("some/folder"), 0)),
        (["demo", "--seed", "4", "--output", "there"], (Path("there"), 4)),
    ],
)
def test_the_demo_takes_a_folder_and_a_seed_and_prints_what_it_found(demo_calls, capsys, arguments, call):
    assert cli.main(arguments) == 0
    assert demo_calls == [call]
    assert capsys.readouterr().out == "a line\nanother line\n"


@pytest.mark.parametrize("arguments", [[], ["dance"], ["demo", "--seed", "many"], ["demo", "--speed", "1"]], ids=str)
def test_a_wrong_command_ends_with_usage_and_runs_nothing(demo_calls, capsys, arguments):
    with pytest.raises(SystemExit) as ended:
        cli.main(arguments)
    assert ended.value.code == 2
    assert "usage: geh-explain" in capsys.readouterr().err
    assert demo_calls == []


# Nothing is executed that a user did not hand over

SOURCES = sorted((ROOT / "geh_explain").rglob("*.py"))
FORBIDDEN_CALLS = {"eval", "exec", "compile", "__import__"}
FORBIDDEN_MODULES = {"pickle", "cPickle", "dill", "cloudpickle", "marshal", "shelve", "subprocess", "pty", "code"}


@pytest.mark.parametrize("path", SOURCES, ids=lambda path: str(path.relative_to(ROOT)))
def test_no_module_runs_text_or_unpickles_files(path):
    for node in ast.walk(ast.parse(path.read_text(encoding="utf8"))):
        if isinstance(node, ast.Import):
            assert not {name.name.split(".")[0] for name in node.names} & FORBIDDEN_MODULES
        elif isinstance(node, ast.ImportFrom):
            assert (node.module or "").split(".")[0] not in FORBIDDEN_MODULES
        elif isinstance(node, ast.Call):
            called = ast.unparse(node.func)
            assert called not in FORBIDDEN_CALLS
            assert called not in ("os.system", "os.popen", "torch.load", "joblib.load", "pd.read_pickle")
            if called in ("np.load", "numpy.load"):
                assert "allow_pickle=False" in ast.unparse(node)
