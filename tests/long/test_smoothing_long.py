"""Smoothing of kinked functions, as in tests/engines/smoothing/test_kinks.py, for all other sets of arguments."""

from kinked_functions import (
    VARIANTS,
    Kink,
    Way,
    check_call,
    check_second_derivative,
    check_step_sharpness,
    check_zero_unsmoothed,
    for_calls,
    for_kinks,
)


@for_calls(VARIANTS)
def test_however_it_is_called_its_smooth_form_is_explained(kink: Kink, way: Way) -> None:
    check_call(kink, way)


# A step is measured over several rows; functions that reduce the whole batch are called with one.
@for_kinks([kink for kink in VARIANTS if kink.rows > 1])
def test_a_step_sets_the_sharpness_by_how_far_the_input_moves(kink: Kink) -> None:
    check_step_sharpness(kink)


@for_kinks([kink for kink in VARIANTS if kink.linear])
def test_unsmoothed_it_has_no_curvature_and_the_warning_names_it(kink: Kink) -> None:
    check_zero_unsmoothed(kink)


@for_kinks(VARIANTS)
def test_the_smooth_form_is_differentiated_twice_correctly(kink: Kink) -> None:
    check_second_derivative(kink)
