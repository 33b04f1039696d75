"""Errors for wrong layers, targets, models and outputs: their type, and what the message names."""

import numpy as np
import pytest
import torch
from expected_errors import ROWS, Applied, Net, cases, refused, valid_points
from explaining import explain_point, uniform_points
from networks import mlp
from torch import nn
from torch.autograd.function import once_differentiable

import geh_explain as geh

pytestmark = pytest.mark.usefixtures("seeded")


# Layers


def with_layer(layer, make=Net):
    return lambda: explain_point(make(), valid_points(), layer=layer, groups=2)


@cases(
    {
        "misspelt": (with_layer("encodr"), ValueError, "layer='encodr'", "did you mean 'encoder'"),
        "far off": (with_layer("zzz"), ValueError, "layer='zzz'", "'encoder'", "named_modules"),
        "empty": (with_layer(""), ValueError, "layer=''", "'encoder'"),
        "no layers": (with_layer("act", nn.Tanh), ValueError, "layer='act'", "no named layers"),
        "of another model": (with_layer(nn.Tanh()), ValueError, "layer=Tanh", "not part of the model"),
        "number": (with_layer(0), TypeError, "layer=0", "dotted name"),
        "of a callable": (with_layer("a", lambda: torch.sum), TypeError, "layer='a'", "callable", "output="),
        "never reached": (with_layer("unused"), RuntimeError, "layer='unused'", "never reached", "choose"),
    }
)
def test_a_wrong_layer_is_refused(call, kind, words):
    with refused(kind, *words):
        call()


class Odd(nn.Module):
    """Has a layer that returns something unusual."""

    def __init__(self, odd):
        super().__init__()
        self.layer = Applied(odd)

    def forward(self, x):
        self.layer(x)
        return x.prod(1)


@cases(
    {
        "tuple": (lambda x: (x, x), TypeError, "layer='layer'", "tuple", "Layer('layer', pick=0)", "(8, 3)"),
        "dict": (lambda x: {"a": x, "b": x}, TypeError, "layer='layer'", "dict", "pick='a'", "'b': (8, 3)"),
        "whole numbers": (lambda x: x.long(), TypeError, "layer='layer'", "int64", "no derivatives"),
        "batch not first": (lambda x: x.T.reshape(3, -1), RuntimeError, "layer='layer'", "8 rows", "batch_first=True"),
        "no batch": (lambda x: x.sum(), RuntimeError, "layer='layer'", "8 rows"),
    }
)
def test_a_layer_whose_output_cannot_be_explained_is_refused(call, kind, words):
    with refused(kind, *words):
        explain_point(Odd(call), valid_points(), layer="layer", groups=2)


# Targets


def with_target(target, outputs=4):
    return lambda: explain_point(Net(outputs), valid_points(), target=target, groups=2)


def one_per_row(rows, batch_size=None):
    return lambda: explain_point(
        Net(4), valid_points(), target=torch.zeros(rows, dtype=torch.long), batch_size=batch_size, groups=2
    )


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
        explain_point(lambda x: x.prod(1), valid_points(), target=target, groups=2)


@pytest.mark.parametrize("target", [0, [0] * ROWS, (0,), np.int64(0), torch.tensor(0)], ids=repr)
def test_the_only_output_may_be_called_0(target):
    plain = explain_point(lambda x: x.prod(1), valid_points(), groups=2)
    assert np.array_equal(
        explain_point(lambda x: x.prod(1), valid_points(), target=target, groups=2).signed, plain.signed
    )


# Models


def with_model(model, **options):
    return lambda: explain_point(model, valid_points(), groups=2, **options)


def with_output(output, **options):
    return lambda: explain_point(Net(), valid_points(), output=output, groups=2, **options)


def broken_at(row):
    return lambda x: x.prod(1) + torch.where((x == valid_points()[row]).all(1), torch.nan, 0.0)


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
        explain_point(MIXING[mixing], valid_points(), groups=2)


def test_a_random_model_is_refused():
    net = nn.Sequential(nn.Linear(3, 8), nn.Tanh(), nn.Dropout(0.5), nn.Linear(8, 1)).train()
    with refused(RuntimeError, "model", "not one function", "eval mode", "Stochastic()"):
        explain_point(lambda x: net(x), valid_points(), groups=2)


def distances_to_ones(x):
    return torch.cdist(x[:, None], torch.ones(len(x), 1, 3)).flatten(1) ** 2


def test_the_exact_engine_refuses_functions_without_a_second_derivative_by_name():
    with refused(RuntimeError, "_cdist_backward", "no second derivative"):
        explain_point(distances_to_ones, valid_points(), engine="exact", groups=2)


def test_functions_without_a_second_derivative_fall_back_to_differences_with_a_warning():
    with pytest.warns(geh.GEHWarning, match="mixed differences.*_cdist_backward"):
        result = explain_point(lambda x: distances_to_ones(x) * x[:, :1], valid_points(), groups=2)
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
def test_functions_that_are_differentiable_once_are_not_taken_for_linear_ones(units):
    with pytest.raises(geh.GEHError, match="second derivative"):
        explain_point(lambda x: Once.apply(x).prod(1), valid_points()[:, :units], engine="exact", groups=2)
    with pytest.warns(geh.GEHWarning, match="mixed differences.*once_differentiable"):
        assert explain_point(lambda x: Once.apply(x).prod(1), valid_points()[:, :units], groups=2).eah.mean.any()


def test_a_second_derivative_that_is_not_finite_is_refused():
    inputs = torch.cat([valid_points(5), torch.zeros(1, 3)])
    with refused(RuntimeError, "second derivatives", "NaN or infinite", "square roots"):
        explain_point(lambda x: x.square().sum(1).sqrt(), inputs, groups=2)


@pytest.mark.parametrize("place", ["the model", "a part of it", "the data", "both", "the data of a callable"])
def test_tensors_without_values_are_refused(place):
    model, x = mlp(3, 8, 8, 1, dtype=torch.float), valid_points()
    if place in ("the model", "both"):
        model = model.to("meta")
    if place == "a part of it":
        model[2].to("meta")
    if place.startswith("the data") or place == "both":
        x = x.to("meta")
    with pytest.raises(geh.GEHError, match="meta"):
        explain_point((lambda x: x.prod(1)) if "callable" in place else model, x, groups=2)


def test_batch_normalisation_over_the_batch_is_refused_in_words():
    net = nn.Sequential(nn.Linear(3, 4), nn.BatchNorm1d(4, track_running_stats=False), nn.Linear(4, 1)).double()
    with pytest.raises(geh.GEHError, match=r"mixes rows.*running statistics"):
        explain_point(net, uniform_points(10, 3))
