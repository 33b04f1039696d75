"""The benchmarks: their modules can be imported, and what they time gives the numbers of explain()."""

import importlib
import pkgutil

import numpy as np
import pytest
import torch
from torch import nn

import benchmarks
import geh_explain as geh
from benchmarks import package_methods

MODULES = [module.name for module in pkgutil.iter_modules(benchmarks.__path__, "benchmarks.")]


@pytest.mark.parametrize("name", [name for name in MODULES if not name.endswith("__main__")])
def test_a_module_can_be_imported(name):
    assert importlib.import_module(name).__doc__


@pytest.mark.parametrize("engine", ["structured", "exact"])
def test_the_bare_engine_gives_the_sums_of_explain(engine):
    net = nn.Sequential(nn.Linear(4, 8), nn.ReLU(), nn.Linear(8, 1)).double()
    x = torch.randn(30, 4, dtype=torch.double)
    explainer = geh.GEHExplainer(net, engine=engine, posterior=geh.posterior.PointEstimate())
    sums = package_methods.bare_sums(explainer, x)()
    result = explainer.explain(x, groups=1, progress=False)
    np.testing.assert_allclose(sums.signed[0] / len(x), result.signed[0], rtol=1e-12)
    np.testing.assert_allclose(sums.absolute[0] / len(x), result.absolute[0], rtol=1e-12)
    assert f"chose the {engine} engine" in package_methods.engine_note(explainer, x)
