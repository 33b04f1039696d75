"""Errors for wrong arguments: their type, and a message with the argument, the value and what to do."""

import numpy as np
import pandas as pd
import pytest
from expected_errors import ROWS, Net, cases, frame, refused, valid_points
from explaining import explain_point
from torch import nn

import geh_explain as geh
from geh_explain.posterior import MCDropout, PointEstimate
from geh_explain.units.channels import Channels

pytestmark = pytest.mark.usefixtures("seeded")


def test_every_error_is_also_a_builtin_error():
    kinds = [
        value for value in vars(geh.errors).values() if isinstance(value, type) and issubclass(value, geh.GEHError)
    ]
    assert len(kinds) > 3
    for kind in set(kinds) - {geh.GEHError}:
        assert issubclass(kind, (ValueError, TypeError, RuntimeError))
    assert issubclass(geh.GEHWarning, UserWarning)


# Groups, draws, seeds, names, scales, batches


def with_options(**options):
    return lambda: explain_point(Net(), valid_points(), **({"groups": 2} | options))


def choose(**options):
    return lambda: geh.GEHExplainer(Net(), posterior=PointEstimate()).choose_groups(
        valid_points(), progress=False, **options
    )


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
            lambda: explain_point(Net(), valid_points(2).repeat(5, 1), groups=3),
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
            lambda: explain_point(Net(), frame().set_axis(["a", "a", "b"], axis=1), groups=2),
            *(ValueError, "'a'", "twice"),
        ),
    }
)
def test_wrong_names_are_refused(call, kind, words):
    with refused(kind, *words):
        call()


def test_one_text_instead_of_names_is_refused_without_miscounting():
    with pytest.raises(geh.GEHError, match="names") as error:
        explain_point(Net(), valid_points(), names="abc", groups=2)
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


# Arguments of GEHExplainer


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
        "posterior networks": (
            lambda: geh.GEHExplainer(Net(), posterior=[Net(), Net()]),
            *(TypeError, "posterior=list(...)", "Ensemble([...])"),
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
