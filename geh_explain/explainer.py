"""The object users hold: it wires the rooms together and holds no maths."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn

from geh_explain import groups as regions
from geh_explain import survey
from geh_explain.attach import Cut, as_module, borrow, device_and_dtype, find_layer
from geh_explain.errors import GEHTypeError, GEHValueError, warn
from geh_explain.groups import GroupChoice
from geh_explain.hessian import Engine, check_engine, choose_engine, why_zero
from geh_explain.interactions import Interactions
from geh_explain.outputs import Output, Target, check_output
from geh_explain.points import Points, Reader
from geh_explain.posterior import MCDropout, PointEstimate, Posterior
from geh_explain.posterior.dropout import has_dropout
from geh_explain.run import PILOT_DRAWS, Collected, run
from geh_explain.units import Units
from geh_explain.version import __version__

#: The most groups that are tried where their number is open.
MOST_GROUPS = 60


class GEHExplainer:
    """Finds which pairs of inputs, or of hidden units, act together in a trained network.

    Parameters
    ----------
    model
        Any ``nn.Module``; a plain callable is enough for the inputs. It is borrowed: everything about
        it is the same afterwards.
    layer
        None for the inputs, else a dotted name (``"layer3.1.conv2"``) or a module, whose output's units
        are explained.
    units
        What one unit is, from :mod:`geh_explain.units`. None: features of the inputs, neurons, or
        channels of feature maps.
    output
        ``"raw"``, ``"probability"`` (sigmoid for one column, softmax for more) or a callable that turns
        what the model returns into a tensor.
    posterior
        Where the uncertainty comes from, from :mod:`geh_explain.posterior`. None: MC dropout if the
        model drops anything, else the point estimate, with a warning.
    engine
        How second derivatives are computed: ``"auto"`` or ``"exact"``.

    Examples
    --------
    >>> import torch, geh_explain as geh
    >>> from torch import nn
    >>> net = nn.Sequential(nn.Linear(4, 32), nn.Tanh(), nn.Dropout(0.1), nn.Linear(32, 1))
    >>> result = geh.GEHExplainer(net).explain(torch.randn(100, 4), groups=3, draws=50, progress=False)
    >>> list(result.top(2).columns[:3])
    ['unit_i', 'unit_j', 'mean']
    """

    def __init__(
        self,
        model: nn.Module | Callable[..., Any],
        layer: str | nn.Module | None = None,
        *,
        units: Units | None = None,
        output: Output = "raw",
        posterior: Posterior | None = None,
        smooth: str | float | None = "auto",
        engine: str = "auto",
    ) -> None:
        self.model = as_module(model)
        self.layer = find_layer(self.model, layer)
        if units is not None and not isinstance(units, Units):
            raise GEHTypeError(f"units={units!r} is not a unit set; use one of geh_explain.units, such as Channels().")
        check_output(output)
        check_engine(engine)
        _check_posterior(posterior, self.layer)
        self.units, self.output, self.posterior = units, output, posterior
        self.smooth, self.engine = smooth, engine

    def explain(
        self,
        inputs: Any,
        target: Target = None,
        additional_forward_args: Any = None,
        *,
        groups: Any = "auto",
        draws: int = 100,
        names: Sequence[str] | None = None,
        scale: str | Sequence[float] | NDArray[np.floating[Any]] | None = None,
        batch_size: int | None = None,
        seed: int = 0,
        progress: bool = True,
    ) -> Interactions:
        """Measure the interactions of all pairs of units over the points ``inputs``.

        Parameters
        ----------
        inputs
            Tensor, ndarray, DataFrame, tuple of tensors, Dataset or DataLoader (of inputs, or of tuples
            whose first entry is the inputs).
        target
            Which output to explain, as in Captum: an int, a tuple, or one per row; None for one output.
        additional_forward_args
            Further arguments of the model, as in Captum; those with one entry per row are cut with it.
        groups
            The number of regions of the data within which signs may cancel; ``"auto"`` chooses it;
            labels, one per row; or a scikit-learn clusterer.
        draws
            Posterior draws K. About 50 settle the means, about 400 the standard deviations.
        names
            Names of the units; a DataFrame's columns by default.
        scale
            ``"std"`` multiplies each unit by its standard deviation, which makes pairs comparable; an
            array multiplies by what it says; None leaves the units of measure as they are.
        batch_size
            Rows at a time; None chooses it from the free memory.
        seed
            Same seed, same draws.
        progress
            Show a progress bar.
        """
        regions.check_groups(groups)
        draws, seed = whole("draws", draws, 1), whole("seed", seed, 0)
        with borrow(self.model):
            points = self._read(inputs, target, additional_forward_args)
            cut = self._cut(points)
            unit_names = _unit_names(names, cut, points)
            factors = _factors(scale, cut, points, batch_size)
            collected = self._collect(cut, points, groups, batch_size, seed)
            posterior = self._posterior(cut, points)
            engine = choose_engine(self.engine, batch_size)
            run(cut, points, posterior, engine, collected, draws, seed, progress)
            notes = self._notes(cut, points, posterior, collected, groups)
        settings = {
            **self._settings(cut, posterior, engine),
            "points": len(points),
            "target": _describe(target),
            "groups": _describe(groups),
            "group_count": len(collected.grouping.names),
            "draws": len(collected.signed),
            "scale": _describe(scale),
            "batch_size": batch_size,
            "seed": seed,
            "warnings": notes,
        }
        for note in notes:
            warn(note)
        signed, absolute = collected.means(factors)
        labels, group_names = collected.grouping.labels, collected.grouping.names
        return Interactions(signed, absolute, labels, unit_names, group_names, settings)

    def choose_groups(
        self,
        inputs: Any,
        target: Target = None,
        additional_forward_args: Any = None,
        *,
        max_groups: int = MOST_GROUPS,
        draws: int = PILOT_DRAWS,
        batch_size: int | None = None,
        seed: int = 0,
        progress: bool = True,
    ) -> GroupChoice:
        """Choose the number of groups by the rank weighted distance (the paper's equation 7).

        One pass over the data gives the scores for 1 to ``max_groups`` groups. The result has ``delta``,
        ``chosen`` and ``plot()``; ``explain(groups="auto")`` makes the same choice.
        """
        max_groups, draws, seed = whole("max_groups", max_groups, 2), whole("draws", draws, 1), whole("seed", seed, 0)
        with borrow(self.model):
            points = self._read(inputs, target, additional_forward_args)
            cut = self._cut(points)
            collected = self._collect(cut, points, "auto", batch_size, seed, max_groups)
            posterior = self._posterior(cut, points)
            run(cut, points, posterior, choose_engine(self.engine, batch_size), collected, draws, seed, progress)
        assert collected.choice is not None
        return collected.choice

    def _read(self, inputs: Any, target: Target, additional_forward_args: Any) -> Points:
        device, dtype = device_and_dtype(self.model)
        reader = Reader(floating=self.layer[1] is None, device=device, dtype=dtype)
        return reader.gather(inputs, target, additional_forward_args)

    def _cut(self, points: Points) -> Cut:
        cut = Cut(self.model, self.layer, self.units, self.output, points.first, points.columns)
        if cut.count < 2:
            raise GEHValueError(
                f"{cut.place} has {cut.count} unit of kind {cut.units!r}; an interaction needs two. Choose another "
                "layer or other units."
            )
        return cut

    def _collect(
        self, cut: Cut, points: Points, groups: Any, batch_size: int | None, seed: int, most: int = MOST_GROUPS
    ) -> Collected:
        """Find the groups, or the tree of regions that will become groups."""
        if not isinstance(groups, (str, int, np.integer)) and not hasattr(groups, "fit_predict"):
            return Collected(regions.from_labels(groups, len(points)))
        where = survey.sample(survey.positions(cut, points, batch_size), seed)
        if hasattr(groups, "fit_predict"):
            if len(where) < len(points):
                raise GEHValueError(
                    f"groups={groups!r}: {len(points)} points are too many to cluster at once; pass labels or a number."
                )
            return Collected(regions.from_clusterer(groups, where))
        wanted = most if isinstance(groups, str) else int(groups)
        if wanted > len(points) and not isinstance(groups, str):
            raise GEHValueError(f"groups={wanted}, but there are only {len(points)} points; use at most as many.")
        tree = regions.grow(where, wanted, standardise=survey.is_table(cut, points.first))
        if tree.count < wanted and not isinstance(groups, str):
            raise GEHValueError(
                f"groups={wanted}, but the points fall into only {tree.count} distinct places; use at most as many."
            )
        pieces = [where] if len(where) == len(points) else survey.positions(cut, points, batch_size)
        labels = np.concatenate([tree.labels(piece) for piece in pieces])
        return Collected(regions.from_tree(tree, labels, tree.count), tree if groups == "auto" else None)

    def _posterior(self, cut: Cut, points: Points) -> Posterior:
        if self.posterior is not None:
            return self.posterior
        one = points.first[:1]
        return MCDropout() if has_dropout(self.model, lambda: cut.outputs(one)) else PointEstimate()

    def _notes(self, cut: Cut, points: Points, posterior: Posterior, collected: Collected, groups: Any) -> list[str]:
        """Say what is legal and suspicious."""
        notes = []
        absolute = np.stack(collected.absolute)
        if self.posterior is None and isinstance(posterior, PointEstimate):
            others = "Ensemble(...), WeightSamples(...)" if cut.layer is None else "WeightSamples(...)"
            notes.append(
                "posterior=None and the model has no dropout: the scores are a point estimate without intervals. Pass "
                f"posterior={others} or Stochastic() to learn how sure they are."
            )
        if not absolute.any():
            notes.append(why_zero(cut, points.first))
        elif len(absolute) > 1 and np.ptp(absolute, axis=0).max() == 0:
            notes.append(
                f"posterior={posterior!r}: all {len(absolute)} draws gave the same scores, so their intervals have no "
                "width; check that its samples differ."
            )
        alone, count = int((collected.grouping.sizes == 1).sum()), len(collected.grouping.names)
        if alone and count < len(points) and not isinstance(groups, str):
            notes.append(f"groups: {alone} of {count} groups hold a single point; use fewer groups.")
        return notes

    def _settings(self, cut: Cut, posterior: Posterior, engine: Engine) -> dict[str, Any]:
        return {
            "geh_explain": __version__,
            "torch": torch.__version__,
            "model": type(self.model).__name__,
            "place": cut.place,
            "layer": cut.name or None,
            "units": repr(cut.units),
            "output": _describe(self.output),
            "posterior": repr(posterior),
            "engine": engine.name,
            "device": str(cut.device),
            "dtype": str(cut.dtype).removeprefix("torch."),
        }


def whole(name: str, value: Any, least: int) -> int:
    """Return ``value`` if it is a whole number of at least ``least``."""
    if isinstance(value, bool) or not isinstance(value, (int, np.integer)):
        raise GEHTypeError(f"{name}={value!r} must be a whole number.")
    if value < least:
        raise GEHValueError(f"{name}={value} must be at least {least}.")
    return int(value)


def _check_posterior(posterior: Any, layer: tuple[str, nn.Module | None]) -> None:
    if posterior is None:
        return
    if isinstance(posterior, type) or not isinstance(posterior, Posterior):
        raise GEHTypeError(
            f"posterior={posterior!r} has no draws(model, n, seed); use one of geh_explain.posterior, say MCDropout()"
            + (" (an instance, not the class)." if isinstance(posterior, type) else ".")
        )
    if layer[1] is not None and getattr(posterior, "inputs_only", False):
        raise GEHValueError(
            f"posterior={posterior!r} at layer={layer[0]!r}: hidden units of independently trained networks do not "
            "correspond, unit 3 of one is not unit 3 of another. Use draws around one solution (MCDropout, or "
            "WeightSamples from SWAG or Laplace), or explain the inputs (layer=None)."
        )


def _unit_names(names: Sequence[str] | None, cut: Cut, points: Points) -> list[str]:
    if names is None:
        return cut.units.names(cut.shape, cut.name or "x", points.columns)
    given = [str(name) for name in names]
    if isinstance(names, str) or len(given) != cut.count:
        raise GEHValueError(f"names has {len(given)} entries for {cut.count} units of {cut.place}; give one for each.")
    if len(set(given)) < len(given):
        raise GEHValueError(f"names={given} has a name twice; units must be told apart.")
    return given


def _factors(scale: Any, cut: Cut, points: Points, batch_size: int | None) -> NDArray[np.float64]:
    """Return what each unit's shift is multiplied by."""
    if scale is None:
        return np.ones(cut.count)
    if isinstance(scale, str):
        if scale != "std":
            raise GEHValueError(f"scale={scale!r} is unknown; use None, 'std' or an array with one number per unit.")
        return survey.unit_std(cut, points, batch_size)
    factors = np.asarray(scale.tolist() if isinstance(scale, Tensor) else scale, dtype=np.float64)
    if factors.shape != (cut.count,) or not np.isfinite(factors).all():
        raise GEHValueError(
            f"scale has shape {factors.shape}; give one finite number for each of the {cut.count} units of {cut.place}."
        )
    return factors


def _describe(value: Any) -> Any:
    """Return ``value`` as it is if JSON can hold it, else in words."""
    if value is None or isinstance(value, (str, bool, int, float)):
        return value
    if isinstance(value, (Tensor, np.ndarray)):
        value = value.tolist()
    if isinstance(value, (list, tuple)):
        return [_describe(entry) for entry in value] if len(value) <= 1000 else f"{len(value)} values"
    return repr(value)
