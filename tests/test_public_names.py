"""Public names: those in docs/api.md, and no others."""

import importlib
import inspect
import pkgutil
import re
from pathlib import Path

import pytest

import geh_explain as geh

REFERENCE = (Path(__file__).parents[1] / "docs" / "api.md").read_text()
MODULES = re.findall(r"^\.\. automodule:: (\S+)$", REFERENCE, re.MULTILINE)
CLASSES = re.findall(r"^\.\. autoclass:: (\S+)$", REFERENCE, re.MULTILINE)


def names(module):
    return set(importlib.import_module(module).__all__)


def test_the_top_level_has_what_the_reference_says_and_nothing_else():
    modules = {name.removeprefix("geh_explain.") for name in MODULES} - {"captum", "vision"}  # imported on demand
    classes = {name.removeprefix("geh_explain.") for name in CLASSES if name.count(".") == 1}
    errors = {"GEHError", "GEHWarning"}
    assert set(geh.__all__) == modules | classes | errors | {"__version__"}
    assert dir(geh) == sorted(geh.__all__)
    everything: dict[str, object] = {}
    exec("from geh_explain import *", everything)
    assert set(everything) - {"__builtins__"} == set(geh.__all__)


@pytest.mark.parametrize("module", MODULES)
def test_a_public_module_shows_only_documented_names_of_ours(module):
    for name in names(module):
        value = getattr(importlib.import_module(module), name)
        assert not name.startswith("_")
        if inspect.isclass(value) or inspect.isfunction(value):
            assert value.__module__.startswith("geh_explain"), f"{module}.{name} comes from {value.__module__}"
            assert (inspect.getdoc(value) or "").strip(), f"{module}.{name} has no docstring"


def test_only_the_modules_of_the_reference_say_that_they_have_public_names():
    every = [each.name for each in pkgutil.walk_packages(geh.__path__, "geh_explain.")]
    saying = {name for name in every if hasattr(importlib.import_module(name), "__all__")}
    assert saying == set(MODULES)


@pytest.mark.parametrize("name", CLASSES)
def test_a_class_of_the_reference_is_there_and_its_methods_are_documented(name):
    module, _, last = name.rpartition(".")
    value = getattr(importlib.import_module(module), last)
    for method, function in inspect.getmembers(value, inspect.isfunction):
        if not method.startswith("_") and function.__module__.startswith("geh_explain"):
            assert function.__doc__, f"{name}.{method} has no docstring"
