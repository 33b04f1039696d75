"""The methods of an explainer, whose names and first arguments users and other packages rely on."""

import inspect

import geh_explain as geh


def test_all_methods_are_those_of_the_reference():
    public = {name for name in vars_of(geh.GEHExplainer) if not name.startswith("_")}
    assert public == {
        *("model", "place", "explain", "search", "estimate", "choose_groups", "test", "test_pairs"),
        *("explain_row", "screen", "diagnose", "check", "stability", "surface", "interpret", "share", "triples"),
    }


def vars_of(cls):
    """Return the names that a class and its bases in this package define."""
    return {name for base in cls.__mro__ if base is not object for name in vars(base)}


def test_arguments_that_may_be_given_by_position_have_the_order_of_captum():
    for method in ("explain", "estimate", "choose_groups", "screen", "diagnose", "surface"):
        parameters = inspect.signature(getattr(geh.GEHExplainer, method)).parameters.values()
        positional = [each.name for each in parameters if each.kind is each.POSITIONAL_OR_KEYWORD]
        assert positional == ["self", "inputs", "target", "additional_forward_args"]
    row = list(inspect.signature(geh.GEHExplainer.explain_row).parameters)
    assert row[:4] == ["self", "x_row", "target", "additional_forward_args"]
