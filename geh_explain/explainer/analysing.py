"""Analyses beside an explanation: screening, posterior checks, ablation, sharpness, surfaces and images."""

from __future__ import annotations

import warnings
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import numpy as np

from geh_explain._types import Floats
from geh_explain._validation import check_int
from geh_explain.analyses.ablation import AblationCheck, AblationRequest, baseline_values, check_pairs
from geh_explain.analyses.diagnosis import Diagnosis, diagnose
from geh_explain.analyses.screening import screen_units
from geh_explain.analyses.sharpness import other_sharpnesses, sharpness_table
from geh_explain.analyses.surface import Surface, SurfaceRequest, joint_effect
from geh_explain.data.targets import Target
from geh_explain.engines.difference import Difference
from geh_explain.engines.smoothing.sharpness import Step
from geh_explain.errors import GEHTypeError, GEHValueError, GEHWarning
from geh_explain.explainer.explaining import Explaining
from geh_explain.groups.pairwise import PAIRWISE
from geh_explain.model.cut import Cut
from geh_explain.model.preserve import preserved
from geh_explain.model.unit_values import unit_moments
from geh_explain.posterior import PointEstimate
from geh_explain.results.interactions import Interactions
from geh_explain.run.options import AnalysisOptions, Scale
from geh_explain.run.recorded_arguments import check_columns, columns_of, stored_scale
from geh_explain.scores.ranking import find_unit
from geh_explain.units.categorical import Categorical
from geh_explain.units.pair_set import PairSet
from geh_explain.units.subset import Subset

if TYPE_CHECKING:
    import pandas as pd


class Analysing(Explaining):
    """Methods of :class:`~geh_explain.GEHExplainer` that examine a model or a result further."""

    def screen(
        self,
        inputs: Any,
        target: Target = None,
        additional_forward_args: Any = None,
        *,
        keep: int = 50,
        draws: int = 10,
        scale: Scale = "std",
        batch_size: int | None = None,
        seed: int = 0,
        progress: bool = True,
    ) -> Subset:
        """Return the ``keep`` units with the largest gradients, the largest first, to explain next.

        Units are ranked by their mean absolute gradient over points and draws, times ``scale`` (their standard
        deviation by default), or by the dropout rate that the model has learned for each input, where it has one. The
        cost does not grow with the number of pairs. A unit that acts only where another one moves has a gradient too,
        so that its interactions are not lost; a unit whose effect no point shows is.

        Parameters
        ----------
        inputs, target, additional_forward_args, draws, scale, batch_size, seed, progress
            As in :meth:`explain`.
        keep
            How many units to keep.

        Examples
        --------
        >>> import torch, geh_explain as geh
        >>> model = lambda x: x[:, 3] * x[:, 70] + x[:, 5]
        >>> x = torch.randn(50, 100)
        >>> explainer = geh.GEHExplainer(model, posterior=geh.posterior.PointEstimate())
        >>> sorted(explainer.screen(x, keep=3, progress=False).indices)
        [3, 5, 70]
        """
        check_int("keep", keep, 1)
        options = AnalysisOptions(draws, batch_size, seed, progress)
        with preserved(self.model):
            points, cut = self._setup.read(inputs, target, additional_forward_args)
            posterior = self._setup.posterior_for(cut, points)
            importance = screen_units(cut, points, posterior, scale, options)
        strongest = np.argsort(-importance, kind="stable")[:keep]
        return Subset(strongest, cut.units, importance[strongest])

    def diagnose(
        self,
        inputs: Any,
        target: Target = None,
        additional_forward_args: Any = None,
        *,
        y: Any,
        result: Interactions | None = None,
        draws: int = 100,
        batch_size: int | None = None,
        seed: int = 0,
        progress: bool = True,
    ) -> Diagnosis:
        """Measure how well each draw of the posterior fits known targets ``y``, and whether it is calibrated.

        A posterior whose draws do not fit the data says nothing about the network.

        Parameters
        ----------
        inputs, target, additional_forward_args, draws, batch_size, seed, progress
            As in :meth:`explain`.
        y
            One target per row: numbers for regression, class indices for classification.
        result
            What :meth:`explain` returned: its target is taken, unless ``target`` is given.

        Examples
        --------
        >>> import torch, geh_explain as geh
        >>> net = torch.nn.Sequential(torch.nn.Linear(3, 8), torch.nn.Dropout(0.1), torch.nn.Linear(8, 1))
        >>> x, y = torch.randn(60, 3), torch.randn(60, 1)
        >>> geh.GEHExplainer(net).diagnose(x, y=y, draws=10, progress=False).errors.shape
        (10,)
        """
        options = AnalysisOptions(draws, batch_size, seed, progress)
        if result is not None:
            self._check_result(result)
        with preserved(self.model):
            points, cut = self._setup.read(inputs, self._target_of(result, target), additional_forward_args)
            return diagnose(cut, points, self._setup.posterior_for(cut, points), y, options)

    def check(
        self,
        result: Interactions,
        inputs: Any,
        target: Target = None,
        additional_forward_args: Any = None,
        *,
        measure: str = "geh",
        pairs: int = 100,
        baseline: Any = "mean",
        batch_size: int | None = None,
        seed: int = 0,
        progress: bool = True,
    ) -> AblationCheck:
        """Check whether pairs with high scores act jointly, at inputs that ``result`` was not computed from.

        Units are switched off, alone and in pairs. The effect of both beyond the sum of the single effects should be
        larger where scores are. The network is used without dropout.

        Parameters
        ----------
        result
            What :meth:`explain` returned.
        inputs, target, additional_forward_args, batch_size, seed, progress
            As in :meth:`explain`; other points than those. The target is that of ``result`` where it is None.
        measure
            The scores to check: ``"geh"``, ``"aeh"`` or ``"eah"``.
        pairs
            How many pairs: half of them the strongest, the others drawn from the rest.
        baseline
            Value of a unit that is switched off: its ``"mean"`` over the inputs, a number, or one number per unit. A
            category is set to its most frequent level.

        Examples
        --------
        >>> import torch, geh_explain as geh
        >>> net = lambda x: x[:, 0] * x[:, 1] + x[:, 1] * x[:, 2] / 9 + x[:, 3]
        >>> explainer = geh.GEHExplainer(net, posterior=geh.posterior.PointEstimate())
        >>> result = explainer.explain(torch.randn(100, 4), groups=1, progress=False)
        >>> explainer.check(result, torch.randn(100, 4), progress=False).correlation > 0.9
        True
        """
        self._check_result(result)
        check_int("pairs", pairs, 3)
        options = AnalysisOptions(1, batch_size, seed, progress)
        with preserved(self.model):
            points, cut = self._setup.read(inputs, self._target_of(result, target), additional_forward_args)
            self._check_units(result, points, cut)
            moments = unit_moments(cut, points, batch_size)
            off, factors = baseline_values(baseline, moments.mean), self._factors_of(result, cut, moments.std)
            scores = result.scores(measure).pair_mean
            request = AblationRequest(result.names, result.pairs, scores, pairs, off, factors)
            return check_pairs(cut, points, request, options)

    def _factors_of(self, result: Interactions, cut: Cut, std: Floats) -> Floats:
        """Return by what the units (D,) of a result are multiplied, with their standard deviations at other points."""
        scale = stored_scale(result.record)
        if scale is None:
            return np.ones(len(std))
        if scale != "std":
            return np.abs(np.broadcast_to(np.asarray(scale, dtype=np.float64), std.shape))
        return cut.units.factors(std) if isinstance(cut.units, Categorical) else std

    def stability(
        self,
        result: Interactions,
        inputs: Any,
        target: Target = None,
        additional_forward_args: Any = None,
        *,
        pairs: int = 10,
        batch_size: int | None = None,
        progress: bool = True,
    ) -> pd.DataFrame:
        """Show whether the strongest pairs depend on how sharply kinked functions are smoothed.

        The network without draws is explained at twice and at half the sharpness, in the groups of ``result``, and the
        strongest pairs by mixed differences of the network itself, without smoothing. A pair that keeps its place is a
        property of the network; one that does not belongs to a step size.

        Parameters
        ----------
        result
            What :meth:`explain` returned.
        inputs, target, additional_forward_args, batch_size, progress
            As in the call that returned it; the target is that of ``result`` where it is None.
        pairs
            How many of the strongest pairs by GEH.

        Returns
        -------
        DataFrame
            One row per pair, strongest first: ``unit_i``, ``unit_j``, ``score``, ``rank``, the same with ``_sharper``
            and ``_softer``, ``keeps_place``: whether the pair is among the strongest at all three, and ``difference``:
            its score by :class:`~geh_explain.engines.Difference`, with a step of 0.5 or that of ``smooth=Step(size)``.

        Examples
        --------
        >>> import torch, geh_explain as geh
        >>> from torch import nn
        >>> net = nn.Sequential(nn.Linear(4, 64), nn.ReLU(), nn.Linear(64, 1))
        >>> explainer = geh.GEHExplainer(net, posterior=geh.posterior.PointEstimate())
        >>> x = torch.randn(200, 4)
        >>> result = explainer.explain(x, groups=1, progress=False)
        >>> explainer.stability(result, x, pairs=3, progress=False)[["rank", "rank_sharper"]].shape
        (3, 2)
        """
        self._check_result(result)
        check_int("pairs", pairs, 1)
        target = self._target_of(result, target)
        check_columns(columns_of(inputs), result.record)
        scale = stored_scale(result.record)
        sharper, softer = other_sharpnesses(self._setup.smooth, result.record.smooth, result.record.smoothed)
        groups: Any = np.asarray(result.group_names, dtype=object)[result.labels]
        groups = groups if result.pair_cells is None else PAIRWISE

        def explain(pairs: PairSet, **changes: Any) -> Floats:
            explainer = Explaining.__new__(Explaining)
            explainer._setup = replace(self._setup, posterior=PointEstimate(), **changes)
            options = {"groups": groups, "scale": scale, "batch_size": batch_size, "progress": progress}
            options["sample_weight"] = result.sample_weight
            if not pairs.complete:
                options["pairs"] = list(zip(*pairs.ends, strict=True))
            with warnings.catch_warnings():
                # The user has seen them; that a softer network differs more is the point.
                warnings.simplefilter("ignore", GEHWarning)
                return explainer.explain(inputs, target, additional_forward_args, **options).geh.pair_mean

        known = result.pairs
        scores = [explain(known, smooth=smooth) for smooth in (self._setup.smooth, sharper, softer)]
        table = sharpness_table(result.names, known, scores, pairs)
        ends = [[find_unit(name, result.names) for name in table[column]] for column in ("unit_i", "unit_j")]
        strongest = PairSet.of(list(zip(*ends, strict=True)), len(result.names))
        smooth = self._setup.smooth
        differences = explain(strongest, engine=Difference(smooth.size) if isinstance(smooth, Step) else Difference())
        return table.assign(difference=[differences[strongest.index(i, j)] for i, j in zip(*ends, strict=True)])

    def surface(
        self,
        inputs: Any,
        target: Target = None,
        additional_forward_args: Any = None,
        *,
        pair: tuple[int | str, int | str],
        result: Interactions | None = None,
        grid: int = 25,
        points: int = 50,
        draws: int = 20,
        batch_size: int | None = None,
        seed: int = 0,
        progress: bool = True,
    ) -> Surface:
        """Measure the joint effect of two units on a grid of their values, without their main effects.

        A category of ``units=Categorical(...)`` has its levels on its axis.

        Parameters
        ----------
        inputs, target, additional_forward_args, draws, batch_size, seed, progress
            As in :meth:`explain`.
        pair
            The two units, by name or index.
        result
            What :meth:`explain` returned for the same inputs: its groups and their signed effects are drawn too, and
            its names and its target are taken, unless ``target`` is given.
        grid
            Number of grid values per unit, or all its values where there are fewer.
        points
            How many of the inputs, evenly spaced, the values of the other units are taken from; the response is their
            mean.

        Returns
        -------
        Surface
            It has ``values`` and ``plot()``.

        Examples
        --------
        >>> import torch, geh_explain as geh
        >>> model = lambda x: x[:, 0] * x[:, 1] + x[:, 0] ** 2
        >>> explainer = geh.GEHExplainer(model, posterior=geh.posterior.PointEstimate())
        >>> surface = explainer.surface(torch.rand(200, 3), pair=(0, 1), grid=5, progress=False)
        >>> twist = surface.values[-1, -1] - surface.values[-1, 0] - surface.values[0, -1] + surface.values[0, 0]
        >>> round(float(twist / (surface.first[-1] - surface.first[0]) / (surface.second[-1] - surface.second[0])), 3)
        1.0
        """
        check_int("grid", grid, 2)
        check_int("points", points, 1)
        if not isinstance(pair, (tuple, list)) or len(pair) != 2:
            raise GEHTypeError(f"pair={pair!r} must be two units, by name or index, such as pair=(0, 1).")
        options = AnalysisOptions(draws, batch_size, seed, progress)
        if result is not None:
            self._check_result(result)
        with preserved(self.model):
            read, cut = self._setup.read(inputs, self._target_of(result, target), additional_forward_args)
            if result is not None:
                self._check_units(result, read, cut)
            names = cut.unit_names(None if result is None else result.names)
            first, second = (find_unit(unit, names) for unit in pair)
            if first == second:
                raise GEHValueError(f"pair={tuple(pair)!r} names the same unit twice; a surface needs two.")
            posterior = self._setup.posterior_for(cut, read)
            surface = joint_effect(cut, read, posterior, SurfaceRequest((first, second), grid, points), options)
        if result is None or result.pair_cells is not None:
            return surface
        effects = result.regions(first, second)["mean"].to_numpy()
        return surface.with_groups((names[first], names[second]), result.labels, effects)
