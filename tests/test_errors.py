"""Every wrong use ends in words: the argument, what was given, and the way out."""

from contextlib import contextmanager

import numpy as np
import pandas as pd
import pytest
import torch
from torch import nn
from torch.autograd.function import once_differentiable
from torch.utils.data import DataLoader, Dataset, IterableDataset, TensorDataset

import geh_explain as geh
from geh_explain.posterior import MCDropout, PointEstimate
from geh_explain.units import Channels, FeatureGroups, Subset

ROWS = 24


@pytest.fixture(autouse=True)
def _seeded_and_on_one_core():
    torch.manual_seed(0)
    threads = torch.get_num_threads()
    torch.set_num_threads(1)  # for tensors this small, waking other cores takes longer than the work
    yield
    torch.set_num_threads(threads)


class Net(nn.Module):
    def __init__(self, outputs=1, activation=nn.Tanh):
        super().__init__()
        self.encoder, self.act, self.head = nn.Linear(3, 5), activation(), nn.Linear(5, outputs)
        self.unused = nn.Linear(3, 5)

    def forward(self, x):
        return self.head(self.act(self.encoder(x)))


def points(rows=ROWS):
    return torch.randn(rows, 3, generator=torch.Generator().manual_seed(1))


def frame():
    return pd.DataFrame(points().numpy(), columns=["age", "size", "rooms"])


def explain(model=None, inputs=None, layer=None, *, explainer=None, **options):
    """Explain a small network, with everything in order but what the test changes."""
    options = {"groups": 2, "draws": 2, "progress": False, **options}
    explainer = {"posterior": PointEstimate(), **(explainer or {})}
    model = Net() if model is None else model
    return geh.GEHExplainer(model, layer, **explainer).explain(points() if inputs is None else inputs, **options)


@contextmanager
def refused(kind, *words):
    """Expect an error of this package that is also of a usual ``kind`` and whose message has all ``words``."""
    with pytest.raises(geh.GEHError) as caught:
        yield
    assert isinstance(caught.value, kind)
    missing = [word for word in words if word not in str(caught.value)]
    assert not missing, f"{missing} not in: {caught.value}"


def cases(table):
    """Spread a table {name: (function, kind of error, words ...)} over tests."""
    return pytest.mark.parametrize(
        ("call", "kind", "words"), [(c, k, w) for c, k, *w in table.values()], ids=list(table)
    )


def test_every_error_is_also_one_of_the_usual_kinds():
    kinds = [
        value for value in vars(geh.errors).values() if isinstance(value, type) and issubclass(value, geh.GEHError)
    ]
    assert len(kinds) > 3
    for kind in set(kinds) - {geh.GEHError}:
        assert issubclass(kind, (ValueError, TypeError, RuntimeError))
    assert issubclass(geh.GEHWarning, UserWarning)


# Layers


@cases(
    {
        "misspelt": (lambda: explain(layer="encodr"), ValueError, "layer='encodr'", "did you mean 'encoder'"),
        "far off": (lambda: explain(layer="zzz"), ValueError, "layer='zzz'", "'encoder'", "named_modules"),
        "empty": (lambda: explain(layer=""), ValueError, "layer=''", "'encoder'"),
        "no layers": (lambda: explain(nn.Tanh(), layer="act"), ValueError, "layer='act'", "no named layers"),
        "of another model": (
            lambda: explain(layer=nn.Linear(3, 5)),
            ValueError,
            "layer=Linear",
            "not part of the model",
        ),
        "number": (lambda: explain(layer=0), TypeError, "layer=0", "dotted name"),
        "of a callable": (
            lambda: explain(lambda x: x.prod(1), layer="a"),
            TypeError,
            "layer='a'",
            "callable",
            "output=",
        ),
        "never reached": (lambda: explain(layer="unused"), RuntimeError, "layer='unused'", "never reached", "choose"),
    }
)
def test_a_wrong_layer_is_refused(call, kind, words):
    with refused(kind, *words):
        call()


class Odd(nn.Module):
    """Has a layer that puts out something odd."""

    def __init__(self, odd):
        super().__init__()
        self.layer = Applied(odd)

    def forward(self, x):
        self.layer(x)
        return x.prod(1)


class Applied(nn.Module):
    def __init__(self, function):
        super().__init__()
        self.function = function

    def forward(self, x):
        return self.function(x)


@cases(
    {
        "tuple": (lambda x: (x, x), TypeError, "layer='layer'", "tuple", "Layer('layer', pick=0)", "(8, 3)"),
        "dict": (lambda x: {"a": x, "b": x}, TypeError, "layer='layer'", "dict", "pick='a'", "'b': (8, 3)"),
        "whole numbers": (lambda x: x.long(), TypeError, "layer='layer'", "int64", "no derivatives"),
        "batch not first": (lambda x: x.T.reshape(3, -1), RuntimeError, "layer='layer'", "8 rows", "batch_first=True"),
        "no batch": (lambda x: x.sum(), RuntimeError, "layer='layer'", "8 rows"),
    }
)
def test_a_layer_that_puts_out_something_odd_is_refused(call, kind, words):
    with refused(kind, *words):
        explain(Odd(call), layer="layer")


# Targets


def with_target(target, outputs=4):
    return lambda: explain(Net(outputs), target=target)


def one_per_row(rows, batch_size=None):
    return lambda: explain(Net(4), target=torch.zeros(rows, dtype=torch.long), batch_size=batch_size)


@cases(
    {
        "missing": (with_target(None), ValueError, "target=None", "4 outputs", "target=0 to 3"),
        "too large": (with_target(4), ValueError, "target=4", "out of range", "largest target is 3"),
        "too small": (with_target(-5), ValueError, "target=-5", "out of range"),
        "of a row too large": (with_target([0] * (ROWS - 1) + [9]), ValueError, "target", "out of range"),
        "wrong rank": (with_target((0, 1)), ValueError, "target=(0, 1)", "shape (4,)", "give 1 number"),
        "of a row of wrong rank": (with_target([(0, 1)] * ROWS), ValueError, "target", "shape (4,)", "give 1 number"),
        "float": (with_target(1.0), TypeError, "target=1.0", "int"),
        "floats": (with_target([1.0] * ROWS), TypeError, "target", "whole numbers"),
        "float tensor": (with_target(torch.zeros(ROWS)), TypeError, "target", "float32", "whole numbers"),
        "yes or no": (with_target(True), TypeError, "target=True", "number of the output"),
        "text": (with_target("dog"), TypeError, "target='dog'", "int"),
        "texts": (with_target(["dog"] * ROWS), TypeError, "target", "whole numbers"),
        "tuple of text": (with_target(("dog",)), TypeError, "target", "whole numbers"),
        "ragged": (with_target([[0], [0, 1]]), ValueError, "target", "one per row"),
        "empty": (with_target([]), (TypeError, ValueError), "target=[]"),
        "dict": (with_target({"a": 1}), TypeError, "target", "dict", "int"),
        "too few": (one_per_row(7), ValueError, "target", "(7,)", f"{ROWS} rows", "one per row"),
        "too many": (one_per_row(30), ValueError, "target", "(30,)", f"{ROWS} rows", "one per row"),
        "as few as the rows of a batch": (one_per_row(8, 8), ValueError, "target", "(8,)", f"{ROWS} rows"),
        "second of one": (with_target(1, 1), ValueError, "target=1", "largest target is 0"),
    }
)
def test_a_wrong_target_is_refused(call, kind, words):
    with refused(kind, *words):
        call()


@pytest.mark.parametrize("target", [1, [1] * ROWS, (1,)], ids=["1", "one per row", "tuple"])
def test_a_target_where_there_is_one_output_per_row_points_to_none(target):
    with refused(ValueError, "target", "None"):
        explain(lambda x: x.prod(1), target=target)


@pytest.mark.parametrize("target", [0, [0] * ROWS, (0,), np.int64(0), torch.tensor(0)], ids=repr)
def test_the_only_output_may_be_called_0(target):
    plain = explain(lambda x: x.prod(1))
    assert np.array_equal(explain(lambda x: x.prod(1), target=target).signed, plain.signed)


# Inputs


def with_bad_value(value, row=7):
    inputs = points()
    inputs[row, 2] = value
    return inputs


def as_frame(inputs):
    return pd.DataFrame(inputs.numpy(), columns=["age", "size", "rooms"])


def as_loader(inputs):
    return DataLoader(TensorDataset(inputs), batch_size=5)


class Empty(Dataset):
    def __len__(self):
        return 0

    def __getitem__(self, index):
        raise IndexError


@cases(
    {
        "whole numbers": (torch.ones(4, 3, dtype=torch.long), TypeError, "inputs", "int64", ".float()", "embedding"),
        "whole number array": (np.ones((4, 3), int), TypeError, "inputs", "int64", "embedding"),
        "text array": (np.array([["a", "b", "c"]]), TypeError, "inputs", "not numbers", "float32"),
        "object array": (np.array([[1.0, None, 2.0]], dtype=object), TypeError, "inputs", "object", "float32"),
        "NaN": (with_bad_value(torch.nan), ValueError, "inputs", "row 7", "column 2", "impute"),
        "NaN in an array": (with_bad_value(torch.nan).numpy(), ValueError, "inputs", "row 7", "column 2"),
        "NaN in a frame": (as_frame(with_bad_value(torch.nan)), ValueError, "inputs", "row 7", "column 'rooms'"),
        "NaN in a loader": (as_loader(with_bad_value(torch.nan, 17)), ValueError, "inputs", "row 17", "column 2"),
        "infinity": (with_bad_value(torch.inf), ValueError, "inputs", "row 7", "infinite"),
        "missing values": (
            pd.DataFrame({"age": pd.array([1, None, 3], dtype="Int64"), "size": 1.0, "rooms": 2.0}),
            *(ValueError, "inputs", "row 1", "column 'age'"),
        ),
        "text column": (frame().assign(age="old"), TypeError, "inputs", "['age']", "get_dummies"),
        "category": (frame().assign(age=pd.Categorical(["a"] * ROWS)), TypeError, "inputs", "['age']", "get_dummies"),
        "dates": (frame().assign(age=pd.Timestamp("2020-01-01")), TypeError, "inputs", "['age']", "numbers"),
        "no rows": (torch.empty(0, 3), ValueError, "inputs", "empty"),
        "no rows in an array": (np.empty((0, 3), np.float32), ValueError, "inputs", "empty"),
        "no rows in a frame": (frame().iloc[:0], ValueError, "inputs", "empty"),
        "no rows in a loader": (as_loader(torch.empty(0, 3)), ValueError, "inputs", "empty"),
        "no rows in a dataset": (Empty(), ValueError, "inputs", "empty"),
        "no columns": (torch.empty(5, 0), ValueError, "inputs", "needs two"),
        "scalar": (torch.tensor(1.0), ValueError, "inputs", "first dimension is the rows"),
        "empty tuple": ((), ValueError, "inputs=()", "at least one tensor"),
        "tuple of unequal lengths": ((points(), points(4)), ValueError, "inputs", "[24, 4] rows", "agree"),
        "list": ([[1.0, 2.0, 3.0]], TypeError, "inputs", "list", "tensor"),
        "empty dict": ({}, ValueError, "inputs", "empty", "tensor"),
        "nothing": (None, TypeError, "inputs", "NoneType", "tensor"),
        "loader of dicts": (DataLoader([{"x": 1.0}]), TypeError, "inputs", "dict", "tensor"),
    }
)
def test_wrong_inputs_are_refused(call, kind, words):
    with refused(kind, *words):
        geh.GEHExplainer(Net(), posterior=PointEstimate()).explain(call, groups=1, progress=False)


UNUSUAL = {
    "backwards": lambda x: x[::-1],
    "every other": lambda x: x[:, ::2],
    "of the other endianness": lambda x: x.astype(">f4"),
    "long doubles": lambda x: x.astype(np.longdouble),
    "half precision": lambda x: x.astype(np.float16),
}


@pytest.mark.parametrize("layout", UNUSUAL)
def test_an_array_in_an_unusual_layout_is_read(layout):
    array = UNUSUAL[layout](points().numpy())
    usual = torch.tensor(np.ascontiguousarray(array, dtype=np.float32))
    model = Applied(lambda x: (x * x.flip(1)).sum(1).sin())
    expected = explain(model, usual, explainer={"posterior": PointEstimate()}).signed
    assert np.allclose(explain(model, array).signed, expected, rtol=1e-2, atol=1e-4)


@pytest.mark.parametrize("kind", ["array", "frame", "frame of doubles"])
def test_what_is_read_only_is_read_without_a_warning_of_torch(kind):
    array = points().numpy().copy()
    array.flags.writeable = False
    given = {"array": array, "frame": pd.DataFrame(array), "frame of doubles": pd.DataFrame(array.astype(float))}[kind]
    always = torch.is_warn_always_enabled()
    torch.set_warn_always(True)
    try:
        explain(Net(), given)
    finally:
        torch.set_warn_always(always)


# Models


def with_model(model, **options):
    return lambda: explain(model, **options)


def with_output(output, **options):
    return lambda: explain(explainer={"output": output}, **options)


def broken_at(row):
    return lambda x: x.prod(1) + torch.where((x == points()[row]).all(1), torch.nan, 0.0)


@cases(
    {
        "class": (with_model(Net), TypeError, "model=", "an instance, not the class"),
        "number": (with_model(3), TypeError, "model=3", "Module"),
        "text": (with_model("net.pt"), TypeError, "model='net.pt'", "Module"),
        "returns a dict": (with_model(lambda x: {"scores": x}), TypeError, "dict", "output=", "out['scores']"),
        "returns a tuple": (with_model(lambda x: (x, x)), TypeError, "tuple", "output=", "out[0]"),
        "returns nothing": (with_model(lambda x: None), TypeError, "NoneType", "output="),
        "returns an array of text": (with_model(lambda x: np.array(["a"] * len(x))), TypeError, "ndarray", "tensor"),
        "returns classes": (with_model(lambda x: x.argmax(1)), TypeError, "int64", "no derivatives", "logits"),
        "returns yes or no": (with_model(lambda x: x[:, 0] > 0), TypeError, "bool", "no derivatives"),
        "means over the batch": (with_model(lambda x: x.prod(1).mean()), RuntimeError, "shape ()", "mean", "output="),
        "sums over the batch": (with_model(lambda x: x.sum(0)), RuntimeError, "shape (3,)", "batch"),
        "is NaN": (with_model(lambda x: x.prod(1) * torch.nan), RuntimeError, "output", "NaN", "row 0"),
        "is NaN at a row": (with_model(broken_at(5)), RuntimeError, "output", "NaN", "row 5", "leave such rows out"),
        "is NaN at a later row": (with_model(broken_at(17)), RuntimeError, "output", "row 17"),
        "is NaN in a later batch": (with_model(broken_at(17), batch_size=4), RuntimeError, "output", "row 17"),
        "is infinite": (with_model(lambda x: x.prod(1) / 0), RuntimeError, "output", "infinite"),
    }
)
def test_a_wrong_model_is_refused(call, kind, words):
    with refused(kind, *words):
        call()


@cases(
    {
        "unknown word": (with_output("logit"), ValueError, "output='logit'", "'raw'", "'probability'", "callable"),
        "nothing": (with_output(None), TypeError, "output=None", "'raw'"),
        "number": (with_output(1), TypeError, "output=1", "'raw'"),
        "returns a tuple": (with_output(lambda out: (out, out)), TypeError, "output=", "tuple", "out[0]"),
        "returns a dict": (with_output(lambda out: {"a": out}), TypeError, "output=", "dict", "out['a']"),
        "returns nothing": (with_output(lambda out: None), TypeError, "output=", "NoneType"),
        "returns classes": (with_output(lambda out: out.long()), TypeError, "int64", "no derivatives"),
        "returns a mean": (with_output(lambda out: out.mean()), RuntimeError, "output", "shape ()", "mean"),
    }
)
def test_a_wrong_output_is_refused(call, kind, words):
    with refused(kind, *words):
        call()


MIXING = {
    "centres": lambda x: (x - x.mean(0)).prod(1),
    "softmax over rows": lambda x: x.softmax(0).prod(1),
    "accumulates": lambda x: x.cumsum(0).prod(1),
    "relative to the first row": lambda x: (x - x[:1]).prod(1) + x.exp().prod(1),
    "relative to the row before": lambda x: (x - x.roll(1, 0)).prod(1),
}


@pytest.mark.parametrize("mixing", MIXING)
def test_a_model_that_mixes_rows_is_refused(mixing):
    with refused(RuntimeError, "model", "mixes rows", "batch"):
        explain(MIXING[mixing])


def test_a_random_model_is_refused():
    net = nn.Sequential(nn.Linear(3, 8), nn.Tanh(), nn.Dropout(0.5), nn.Linear(8, 1)).train()
    with refused(RuntimeError, "model", "not one function", "eval mode", "Stochastic()"):
        explain(lambda x: net(x))


def distances_to_ones(x):
    return torch.cdist(x[:, None], torch.ones(len(x), 1, 3)).flatten(1) ** 2


def test_functions_without_a_second_derivative_are_refused_by_name_where_one_is_asked_for():
    with refused(RuntimeError, "_cdist_backward", "no second derivative"):
        explain(distances_to_ones, explainer={"engine": "exact"})


def test_functions_without_a_second_derivative_fall_back_to_differences_in_words():
    with pytest.warns(geh.GEHWarning, match="mixed differences.*_cdist_backward"):
        result = explain(lambda x: distances_to_ones(x) * x[:, :1])
    # |x - 1|^2 x0 has the mixed second derivative 2 (x1 - 1), and differences of a quadratic are exact at the middle.
    assert result.settings["engine"] == "difference"
    assert result.eah.mean[0, 1] > 0


class Once(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x):
        ctx.save_for_backward(x)
        return x.sin()

    @staticmethod
    @once_differentiable
    def backward(ctx, gradient):
        return gradient * ctx.saved_tensors[0].cos()


@pytest.mark.parametrize("units", [2, 3])
def test_functions_that_are_differentiable_once_do_not_pass_for_flat_ones(units):
    with pytest.raises(geh.GEHError, match="second derivative"):
        explain(lambda x: Once.apply(x).prod(1), points()[:, :units], explainer={"engine": "exact"})
    with pytest.warns(geh.GEHWarning, match="mixed differences.*once_differentiable"):
        assert explain(lambda x: Once.apply(x).prod(1), points()[:, :units]).eah.mean.any()


def test_a_second_derivative_that_is_not_finite_is_refused():
    inputs = torch.cat([points(5), torch.zeros(1, 3)])
    with refused(RuntimeError, "second derivatives", "NaN or infinite", "square roots"):
        explain(lambda x: x.square().sum(1).sqrt(), inputs)


# Groups, draws, seeds, names, scales, batches


def with_options(**options):
    return lambda: explain(**options)


def choose(**options):
    return lambda: geh.GEHExplainer(Net(), posterior=PointEstimate()).choose_groups(points(), progress=False, **options)


MISSING_TEXT = ["north", None] * (ROWS // 2)


@cases(
    {
        "0": (with_options(groups=0), ValueError, "groups=0", "at least one"),
        "-1": (with_options(groups=-1), ValueError, "groups=-1", "at least one"),
        "2.5": (with_options(groups=2.5), TypeError, "groups=2.5", "whole number"),
        "yes": (with_options(groups=True), TypeError, "groups=True", "whole number"),
        "word": (with_options(groups="many"), ValueError, "groups='many'", "'auto'", "labels", "clusterer"),
        "nothing": (with_options(groups=None), TypeError, "groups=None", "'auto'"),
        "class": (with_options(groups=nn.Tanh), TypeError, "groups=", "clusterer"),
        "object": (with_options(groups=object()), (TypeError, ValueError), "groups", "label"),
        "too few labels": (with_options(groups=[0, 1] * 3), ValueError, "groups", "(6,)", "24 points"),
        "a table of labels": (with_options(groups=[[0] * ROWS]), ValueError, "groups", "(1, 24)", "24 points"),
        "NaN labels": (with_options(groups=[0.0, np.nan] * (ROWS // 2)), ValueError, "groups", "NaN"),
        "no label for some": (with_options(groups=MISSING_TEXT), (TypeError, ValueError), "groups", "every point"),
        "no label for some, in an array": (
            with_options(groups=np.array(MISSING_TEXT, dtype=object)),
            *((TypeError, ValueError), "groups", "every point"),
        ),
        "no label for some, in a series": (
            with_options(groups=pd.Series(MISSING_TEXT)),
            *((TypeError, ValueError), "groups", "every point"),
        ),
        "more than points": (with_options(groups=25), ValueError, "groups=25", "24 points", "at most"),
        "more than places": (
            lambda: explain(inputs=points(2).repeat(5, 1), groups=3),
            *(ValueError, "groups=3", "2 distinct", "at most"),
        ),
        "max_groups=1": (choose(max_groups=1), ValueError, "max_groups=1", "at least 2"),
        "max_groups=2.5": (choose(max_groups=2.5), TypeError, "max_groups=2.5", "whole number"),
    }
)
def test_wrong_groups_are_refused(call, kind, words):
    with refused(kind, *words):
        call()


@cases(
    {
        "draws=0": (with_options(draws=0), ValueError, "draws=0", "at least 1"),
        "draws=1.5": (with_options(draws=1.5), TypeError, "draws=1.5", "whole number"),
        "draws=True": (with_options(draws=True), TypeError, "draws=True", "whole number"),
        "draws of choose_groups": (choose(draws=0), ValueError, "draws=0", "at least 1"),
        "seed=-1": (with_options(seed=-1), ValueError, "seed=-1", "at least 0"),
        "seed=None": (with_options(seed=None), TypeError, "seed=None", "whole number"),
        "seed of choose_groups": (choose(seed=-1), ValueError, "seed=-1", "at least 0"),
        "batch_size=0": (with_options(batch_size=0), ValueError, "batch_size=0", "at least 1"),
        "batch_size=-1": (with_options(batch_size=-1), ValueError, "batch_size=-1", "at least 1"),
        "batch_size=-1 with labels": (
            with_options(batch_size=-1, groups=range(ROWS)),
            *(ValueError, "batch_size=-1", "at least 1"),
        ),
        "batch_size=2.5": (with_options(batch_size=2.5), TypeError, "batch_size=2.5", "whole number"),
        "batch_size='all'": (with_options(batch_size="all"), TypeError, "batch_size='all'", "whole number"),
        "batch_size of choose_groups": (choose(batch_size=0), ValueError, "batch_size=0", "at least 1"),
    }
)
def test_wrong_numbers_are_refused(call, kind, words):
    with refused(kind, *words):
        call()


@cases(
    {
        "too few": (with_options(names=["a", "b"]), ValueError, "names", "2 entries", "3 units"),
        "twice": (with_options(names=["a", "b", "a"]), ValueError, "names", "twice"),
        "a number": (with_options(names=3), TypeError, "names", "3"),
        "twice in a frame": (
            lambda: explain(inputs=frame().set_axis(["a", "a", "b"], axis=1)),
            *(ValueError, "'a'", "twice"),
        ),
    }
)
def test_wrong_names_are_refused(call, kind, words):
    with refused(kind, *words):
        call()


def test_one_text_instead_of_names_is_refused_without_miscounting():
    with pytest.raises(geh.GEHError, match="names") as error:
        explain(names="abc")
    assert "3 entries for 3 units" not in str(error.value)


@cases(
    {
        "too few": (with_options(scale=[1.0, 2.0]), ValueError, "scale", "(2,)", "3 units"),
        "one number": (with_options(scale=2.0), ValueError, "scale", "3 units"),
        "unknown word": (with_options(scale="range"), ValueError, "scale='range'", "'std'"),
        "NaN": (with_options(scale=[1.0, np.nan, 1.0]), ValueError, "scale", "finite"),
        "texts": (with_options(scale=["a", "b", "c"]), (TypeError, ValueError), "scale", "3 units"),
        "object": (with_options(scale=object()), (TypeError, ValueError), "scale", "3 units"),
    }
)
def test_a_wrong_scale_is_refused(call, kind, words):
    with refused(kind, *words):
        call()


# What an explainer is made with


def made_with(layer=None, **options):
    return lambda: geh.GEHExplainer(Net(), layer, **options)


@cases(
    {
        "posterior class": (made_with(posterior=MCDropout), TypeError, "posterior=", "an instance, not the class"),
        "posterior object": (
            made_with(posterior=object()),
            TypeError,
            "posterior=",
            "draws(model, n, seed)",
            "MCDropout()",
        ),
        "posterior word": (made_with(posterior="dropout"), TypeError, "posterior='dropout'", "MCDropout()"),
        "engine": (made_with(engine="fast"), ValueError, "engine='fast'", "'auto'", "'exact'"),
        "engine number": (made_with(engine=1), (TypeError, ValueError), "engine=1", "'auto'"),
        "units word": (made_with(units="channels"), TypeError, "units='channels'", "Channels()"),
        "units class": (made_with(units=Channels), TypeError, "units=", "Channels()"),
        "units list": (made_with(units=[0, 1]), TypeError, "units=[0, 1]", "geh_explain.units"),
        "smooth word": (made_with(smooth="softly"), ValueError, "smooth='softly'", "'auto'"),
        "smooth negative": (made_with(smooth=-1.0), ValueError, "smooth=-1.0"),
        "smooth zero": (made_with(smooth=0), ValueError, "smooth=0"),
        "smooth list": (made_with(smooth=[10.0]), (TypeError, ValueError), "smooth=[10.0]"),
    }
)
def test_an_explainer_is_not_made_with_wrong_arguments(call, kind, words):
    with refused(kind, *words):
        call()


def with_units(make, inputs=None):
    return lambda: explain(inputs=inputs, explainer={"units": make()})


@cases(
    {
        "one feature": (
            lambda: explain(lambda x: x[:, 0] ** 2, points()[:, :1]),
            ValueError,
            "inputs",
            "1 unit",
            "needs two",
        ),
        "one neuron": (
            lambda: explain(nn.Sequential(nn.Linear(3, 1), nn.Tanh()), layer="0"),
            *(ValueError, "layer '0'", "1 unit", "needs two"),
        ),
        "one chosen": (with_units(lambda: Subset([0])), ValueError, "Subset([0]", "needs two"),
        "Subset out of range": (with_units(lambda: Subset([0, 9])), ValueError, "Subset", "3 units", "0 to 2", "[9]"),
        "Subset below 0": (with_units(lambda: Subset([0, -1])), ValueError, "Subset", "0 to 2", "[-1]"),
        "Subset twice": (with_units(lambda: Subset([0, 0])), ValueError, "Subset([0, 0])", "only once"),
        "Subset empty": (with_units(lambda: Subset([])), ValueError, "Subset([])", "at least one"),
        "Subset of fractions": (with_units(lambda: Subset([0.5, 1.0])), ValueError, "Subset", "whole number"),
        "Subset number": (with_units(lambda: Subset(2)), (TypeError, ValueError), "Subset", "index"),
        "Subset mask": (with_units(lambda: Subset([True, False])), (TypeError, ValueError), "Subset", "whole number"),
        "Channels beyond": (with_units(lambda: Channels(dim=9)), ValueError, "Channels(dim=9)", "2 dimensions"),
        "Channels of the batch": (with_units(lambda: Channels(dim=0)), ValueError, "Channels(dim=0)", "2 dimensions"),
        "Channels word": (with_units(lambda: Channels(dim="last")), (TypeError, ValueError), "Channels", "dim='last'"),
        "Channels between": (with_units(lambda: Channels(dim=1.5)), (TypeError, ValueError), "Channels", "dim=1.5"),
    }
)
def test_wrong_units_are_refused(call, kind, words):
    with refused(kind, *words):
        call()


def with_groups_of_features(groups, inputs=None):
    return with_units(lambda: FeatureGroups(groups), inputs)


@cases(
    {
        "unknown column": (
            with_groups_of_features({"a": ["age"], "b": ["weight"]}, frame()),
            *(ValueError, "FeatureGroups", "'b'", "'weight'", "['age', 'size', 'rooms']"),
        ),
        "name without names": (
            with_groups_of_features({"a": ["age"], "b": [1]}),
            *(ValueError, "FeatureGroups", "'age'", "no column names"),
        ),
        "number beyond": (with_groups_of_features({"a": [0], "b": [7]}), ValueError, "FeatureGroups", "7", "3 columns"),
        "overlapping": (
            with_groups_of_features({"a": [0, 1], "b": [1, 2]}),
            *(ValueError, "FeatureGroups", "column in two groups", "every column one group"),
        ),
        "overlapping from behind": (with_groups_of_features({"a": [2], "b": [-1]}), ValueError, "in two groups"),
        "empty group": (with_groups_of_features({"a": [], "b": [1]}), ValueError, "empty group", "at least one"),
        "no group": (with_groups_of_features({}), TypeError, "FeatureGroups", "mapping"),
        "list": (with_groups_of_features([[0], [1]]), TypeError, "FeatureGroups", "mapping"),
        "number for a list": (
            with_groups_of_features({"a": 0, "b": 1}),
            (TypeError, ValueError),
            "FeatureGroups",
            "'a'",
        ),
        "fraction": (with_groups_of_features({"a": [0.5], "b": [1]}), (TypeError, ValueError), "FeatureGroups", "0.5"),
    }
)
def test_wrong_groups_of_features_are_refused(call, kind, words):
    with refused(kind, *words):
        call()


def test_one_name_is_not_taken_for_a_list_of_letters():
    try:
        result = with_groups_of_features({"who": "age", "what": "size"}, frame())()
    except geh.GEHError as error:
        message = str(error)
    else:
        message = str(result.names)
    assert "'a'" not in message


# Loaders too large to keep


class Streaming(IterableDataset):
    """Gives what ``rows(pass)`` says, pass by pass."""

    def __init__(self, rows):
        self.rows, self.passes = rows, 0

    def __iter__(self):
        self.passes += 1
        return iter(self.rows(self.passes))


@pytest.fixture
def streamed(monkeypatch):
    monkeypatch.setattr("geh_explain.points.KEEP_SHARE", 0)


def whole_points():
    return torch.arange(3.0 * ROWS).reshape(ROWS, 3) % 7


def permuted(number):
    return whole_points()[torch.randperm(ROWS, generator=torch.Generator().manual_seed(number))]


@pytest.mark.usefixtures("streamed")
@pytest.mark.parametrize("batch_size", [5, ROWS])
@pytest.mark.parametrize(
    "rows",
    [lambda number: points() + number, permuted, lambda number: points() if number < 3 else points().flip(1)],
    ids=["others", "permuted", "other columns"],
)
def test_a_loader_that_gives_other_rows_later_is_refused(rows, batch_size):
    with refused(RuntimeError, "inputs", "loader", "first pass", "pass a tensor"):
        explain(inputs=DataLoader(Streaming(rows), batch_size=batch_size))


@pytest.mark.usefixtures("streamed")
@pytest.mark.parametrize("later", [8, 10, 50])
def test_a_loader_that_gives_another_number_of_rows_later_is_refused(later):
    data = points(50)
    loader = DataLoader(Streaming(lambda number: data[: 20 if number < 3 else later]), batch_size=5)
    with refused(RuntimeError, "inputs", "loader", "first pass"):
        explain(inputs=loader)


@pytest.mark.usefixtures("streamed")
def test_a_loader_that_can_be_read_once_is_refused():
    rows = iter(points())
    with refused((RuntimeError, ValueError), "inputs", "loader"):
        explain(inputs=DataLoader(Streaming(lambda number: rows), batch_size=5))


@pytest.mark.usefixtures("streamed")
@pytest.mark.parametrize("own", [False, True], ids=["global generator", "own generator"])
def test_a_shuffling_loader_repeats_itself_when_it_is_streamed(own):
    generator = torch.Generator().manual_seed(3) if own else None
    loader = DataLoader(TensorDataset(points()), batch_size=5, shuffle=True, generator=generator)
    model, before = Net(), generator.get_state() if own else None
    assert np.allclose(explain(model, loader).aeh.mean, explain(model).aeh.mean, rtol=1e-4)
    assert not own or torch.equal(generator.get_state(), before)


# Warnings


def warned(*words):
    return pytest.warns(geh.GEHWarning, match=".*".join(words))


def test_a_piecewise_linear_network_is_said_to_be_one():
    with warned("all 3 pairs are exactly 0", "piecewise linear", "relu", "output='probability'"):
        explain(Net(activation=nn.ReLU), explainer={"smooth": None})


@pytest.mark.parametrize("trainable", [True, False])
def test_a_linear_path_is_said_to_be_one(trainable):
    model = Net().requires_grad_(trainable)
    with warned("all 10 pairs are exactly 0", "the path from 'act' to the output is linear", "output='probability'"):
        result = explain(model, layer="act")
    assert not result.eah.mean.any()


@pytest.mark.parametrize("trainable", [True, False])
def test_before_the_last_activation_every_unit_bends_on_its_own(trainable):
    with warned("all 10 pairs are exactly 0", "the path from 'encoder'", "choose an earlier", "output='probability'"):
        explain(Net().requires_grad_(trainable), layer="encoder")


@pytest.mark.parametrize(
    "model", [nn.Linear(3, 1), lambda x: x.exp().sum(1), nn.Sequential(nn.Tanh(), nn.Linear(3, 1))]
)
def test_an_additive_model_is_said_to_be_one(model):
    with warned("all 3 pairs are exactly 0", "additive"):
        explain(model)


class Beside(nn.Module):
    """Has a layer whose output is not used."""

    def __init__(self):
        super().__init__()
        self.side, self.net = nn.Linear(3, 4), Net()

    def forward(self, x):
        self.side(x)
        return self.net(x)


@pytest.mark.parametrize("trainable", [True, False])
def test_an_output_that_does_not_depend_on_the_layer_is_said_to_be_so(trainable):
    with warned("all 6 pairs are exactly 0", "does not depend on layer 'side'", "choose a layer"):
        explain(Beside().requires_grad_(trainable), layer="side")


def test_a_constant_model_is_said_to_be_one():
    with warned("all 3 pairs are exactly 0", "does not depend on the inputs"):
        explain(lambda x: torch.ones(len(x)))


def test_the_only_pair_is_called_the_only_pair():
    with warned("the only pair is exactly 0"):
        explain(lambda x: x.exp().sum(1), points()[:, :2])


@pytest.mark.parametrize("groups", [20, [0] * (ROWS - 1) + [1]], ids=["number", "labels"])
def test_groups_of_one_point_are_warned_of(groups):
    with warned("groups", "hold a single point", "fewer groups"):
        explain(groups=groups)


def test_every_point_as_a_group_is_meant():
    assert len(explain(groups=ROWS).group_names) == ROWS


def test_a_warning_points_at_the_users_line_and_stays_with_the_result():
    with pytest.warns(geh.GEHWarning) as caught:
        result = explain(lambda x: x.exp().sum(1))
    assert [warning.filename for warning in caught] == [__file__]
    assert result.settings["warnings"] == [str(caught[0].message)]
