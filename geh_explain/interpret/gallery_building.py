"""Construction of a gallery: exemplars of each unit and of each pair, and inputs by gradient ascent."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from functools import partial
from inspect import signature
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn

from geh_explain.data.reader import Reader
from geh_explain.errors import GEHRuntimeError, GEHTypeError, GEHValueError
from geh_explain.interpret.ascent.maximisation import Maximised, maximise
from geh_explain.interpret.ascent.objectives import soft_minimum
from geh_explain.interpret.ascent.reference import max_reference_rows, value_range
from geh_explain.interpret.exemplar_search import CandidateSearch
from geh_explain.interpret.exemplar_set import Exemplars
from geh_explain.interpret.gallery import Gallery, PairView
from geh_explain.interpret.pair_selection import PairSelection, ScoredPair
from geh_explain.interpret.responses import HiddenUnits
from geh_explain.interpret.top_candidates import TopCandidates
from geh_explain.model.preserve import device_and_dtype, preserved
from geh_explain.units.base import Units
from geh_explain.units.subset import Subset

#: Parameters of :func:`maximise` that the gallery sets itself.
_FIXED_OPTIONS = {"model", "layer", "units", "shape", "unit_set"}

#: Reads candidates by their row numbers, one tensor per input of the model.
ReadRows = Callable[[NDArray[Any]], tuple[Tensor, ...]]


def build_gallery(
    hidden: HiddenUnits,
    selection: PairSelection,
    candidates: Any,
    joint: Any,
    search: CandidateSearch,
    ascent: dict[str, Any] | None,
) -> Gallery:
    """Return the gallery of the selected pairs.

    Parameters
    ----------
    hidden
        The model, the layer and the unit set that the pairs are about.
    selection
        The pairs, from :func:`~geh_explain.interpret.pair_selection.choose_pairs`.
    candidates
        Inputs among which exemplars of single units are searched.
    joint
        Inputs among which exemplars of both units of a pair are searched; None for ``candidates``.
    search
        Options of the search.
    ascent
        Options of :func:`maximise`, from :func:`ascent_options`; None for no gradient ascent.

    Raises
    ------
    GEHValueError
        If the result has another unit set than the explainer.
    GEHRuntimeError
        If the candidates can be read only once.
    """
    involved = sorted({unit for pair in selection.pairs for unit in pair.numbers})
    columns = [[involved.index(unit) for unit in pair.numbers] for pair in selection.pairs]
    chosen = replace(hidden, units=Subset(involved, hidden.units))
    search = replace(search, keep_values=True)
    joint_search = search if joint is None else replace(search, argument="joint", clusters=None)
    with preserved(hidden.model):
        top = search(chosen, candidates)
        # A unit set of None is known only after the search has run the model.
        _check_unit_set(selection.unit_set, top.units)
        joint_top = top if joint is None else joint_search(chosen, joint)
    exemplars = top.result()
    read = partial(_read_rows, hidden.model, candidates, search.argument)
    joint_read = read if joint is None else partial(_read_rows, hidden.model, joint, joint_search.argument)
    joint_exemplars = _joint_exemplars(joint_top, joint_read, columns, search.k)
    maximised = None
    if ascent is not None and _is_floating_tensor(exemplars.inputs):
        n_rows = min(top.n_rows, max_reference_rows(exemplars.inputs[0, 0].numel()))
        (reference,) = read(np.linspace(0, top.n_rows - 1, n_rows))
        maximised = _maximise_pairs(hidden, selection, reference, ascent)
    views = [
        _view(
            pair,
            exemplars.select(columns[number]),
            joint_exemplars[number],
            None if maximised is None else maximised.select(range(3 * number, 3 * number + 3)),
        )
        for number, pair in enumerate(selection.pairs)
    ]
    return Gallery(views, selection.measure, selection.output_std)


def ascent_options(ascent: Any, defaults: dict[str, Any]) -> dict[str, Any] | None:
    """Return the options of gradient ascent, or None for no gradient ascent.

    Parameters
    ----------
    ascent
        True, False, or a dict with options of :func:`maximise`, which take precedence over ``defaults``.
    defaults
        Options that apply unless the user sets them.

    Examples
    --------
    >>> ascent_options({"steps": 10}, {"seed": 0})
    {'seed': 0, 'steps': 10}
    >>> ascent_options(False, {"seed": 0}) is None
    True
    """
    if isinstance(ascent, bool):
        return defaults if ascent else None
    if not isinstance(ascent, dict):
        raise GEHTypeError(f"ascent={ascent!r} must be True, False, or a dict with options of maximise().")
    allowed = set(signature(maximise).parameters) - _FIXED_OPTIONS
    unknown = sorted(set(ascent) - allowed)
    if unknown:
        raise GEHValueError(f"ascent: {unknown} are not options of maximise(); use some of {sorted(allowed)}.")
    return {**defaults, **ascent}


def _view(pair: ScoredPair, exemplars: Exemplars, both: Exemplars, ascent: Maximised | None) -> PairView:
    """Return a pair together with its inputs."""
    return PairView(
        pair.units,
        pair.numbers,
        pair.mean,
        pair.low,
        pair.high,
        pair.regions,
        replace(exemplars, names=list(pair.units)),
        both,
        ascent,
    )


def _check_unit_set(recorded: str | None, units: Units) -> None:
    """Raise GEHValueError if the result's unit set differs from the explainer's, of which ``units`` is a subset."""
    unit_set = units.of if isinstance(units, Subset) else units
    if recorded is not None and recorded != repr(unit_set):
        raise GEHValueError(
            f"result: its units are {recorded}, and this explainer's {unit_set!r}; use the explainer that made it."
        )


def _joint_exemplars(top: TopCandidates, read: ReadRows, columns: list[list[int]], k: int) -> list[Exemplars]:
    """Return for each pair the k candidates that excite both of its units.

    Candidates are ranked by the smooth minimum of the two activations, each standardised over the candidates.

    Parameters
    ----------
    top
        Activations of all candidates.
    read
        Reads candidates by their numbers.
    columns
        For each pair, the columns of its two units in the activations.
    k
        Candidates per pair.
    """
    values = top.values()
    spread = values.std(dim=0, correction=0)
    # A constant unit has spread 0; it then contributes 0 to the standardised values.
    standardised = (values - values.mean(dim=0)) / torch.where(spread > 0, spread, torch.ones_like(spread))
    scores = [soft_minimum(standardised[:, pair]) for pair in columns]
    indices = [top.choose(pair_scores, k).numpy() for pair_scores in scores]
    # One pass over the candidates reads the exemplars of all pairs.
    inputs = read(np.concatenate(indices))
    exemplars = []
    for number, pair_scores in enumerate(scores):
        pair_inputs = tuple(x[None, number * k : (number + 1) * k] for x in inputs)
        exemplars.append(
            Exemplars(
                indices[number][None],
                pair_scores[indices[number]][None].numpy(),
                pair_inputs[0] if len(pair_inputs) == 1 else pair_inputs,
                ["both"],
                top.n_rows,
                places=None,
                map_shape=None,
                dead=np.array([False]),
            )
        )
    return exemplars


def _maximise_pairs(
    hidden: HiddenUnits, selection: PairSelection, reference: Tensor, options: dict[str, Any]
) -> Maximised:
    """Run gradient ascent for the first unit, the second and both of each pair, within the range of ``reference``."""
    wanted = [objective for pair in selection.pairs for objective in (*pair.numbers, pair.numbers)]
    # A unit of several pairs is maximised once.
    objectives = list(dict.fromkeys(wanted))
    defaults = {"unit_set": hidden.units, "reference": reference, "limits": value_range(reference)}
    maximised = maximise(hidden.model, hidden.layer, objectives, tuple(reference.shape[1:]), **{**defaults, **options})
    return maximised.select([objectives.index(objective) for objective in wanted])


def _read_rows(model: nn.Module, candidates: Any, argument: str, numbers: NDArray[Any]) -> tuple[Tensor, ...]:
    """Return the candidates with these row numbers, in this order, one tensor per input of the model.

    Candidates are read in a second pass, since keeping all of them during the search could fill the memory.

    Raises
    ------
    GEHRuntimeError
        If the second pass yields fewer rows than the first, as a generator does.
    """
    device, dtype = device_and_dtype(model)
    order = [int(number) for number in numbers]
    inputs: dict[int, tuple[Tensor, ...]] = {}
    # Loaders draw from the global random generators, which preserved() restores.
    with preserved(model):
        reader = Reader(floating_only=False, device=device, dtype=dtype, argument=argument)
        for rows in reader.stream(candidates, None):
            for number in {number for number in order if rows.start <= number < rows.start + len(rows)}:
                inputs[number] = tuple(x[number - rows.start].clone() for x in rows.inputs)
    if len(inputs) < len(set(order)):
        raise GEHRuntimeError(
            f"{argument}: the rows could be read only once, and a second pass is needed; pass a tensor, or a Dataset "
            "that can be iterated again."
        )
    return tuple(torch.stack(parts) for parts in zip(*(inputs[number] for number in order), strict=True))


def _is_floating_tensor(inputs: Any) -> bool:
    return isinstance(inputs, Tensor) and inputs.is_floating_point()
