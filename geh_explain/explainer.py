"""The object users hold: it wires the rooms together and holds no maths."""

from __future__ import annotations

import os
from collections.abc import Callable, Sequence
from functools import partial
from typing import Any

import numpy as np
from numpy.typing import NDArray
from torch import nn

from geh_explain._validation import check_int
from geh_explain.analyses.diagnosis import Diagnosis, diagnose
from geh_explain.analyses.screening import expected_gradients, learned_rates
from geh_explain.closer_look import CloserLook
from geh_explain.data.targets import Target
from geh_explain.engines import Engine
from geh_explain.engines.default import check_engine
from geh_explain.engines.smoothing.view import check_smooth
from geh_explain.errors import GEHTypeError, warn
from geh_explain.groups.assignment import MAX_GROUPS
from geh_explain.groups.number import GroupChoice
from geh_explain.model.borrow import as_module, borrow, half_precision
from geh_explain.model.layers import Layer, find_layer
from geh_explain.model.outputs import Output, check_output
from geh_explain.model.unit_values import unit_factors
from geh_explain.posterior import Posterior
from geh_explain.posterior.default import check_posterior
from geh_explain.posterior.protocols import steady
from geh_explain.results.interactions import Interactions
from geh_explain.run.accumulate import PILOT_DRAWS
from geh_explain.run.checkpoint import Checkpoint
from geh_explain.run.distributed import find_rank_group
from geh_explain.run.record import RunRecord, describe, settings_of
from geh_explain.run.warnings import notes_on, unsettled
from geh_explain.run.workbench import Workbench
from geh_explain.units.base import Units
from geh_explain.units.subset import Subset


class GEHExplainer(CloserLook):
    """Finds which pairs of inputs, or of hidden units, act together in a trained network.

    Parameters
    ----------
    model
        Any ``nn.Module``; a plain callable is enough for the inputs. It is borrowed: everything about
        it is the same afterwards.
    layer
        None for the inputs, else a dotted name (``"layer3.1.conv2"``) or a module, whose output's units
        are explained; :class:`~geh_explain.Layer` for one that puts out several tensors, or is called several times.
    units
        What one unit is, from :mod:`geh_explain.units`. None: features of the inputs, neurons, or
        channels of feature maps.
    output
        ``"raw"``, ``"probability"`` (sigmoid for one column, softmax for more) or a callable that turns
        what the model returns into a tensor.
    posterior
        Where the uncertainty comes from, from :mod:`geh_explain.posterior`. None: MC dropout if the
        model drops anything, else the point estimate, with a warning.
    smooth
        Kinked functions (ReLU, max pooling, ...) have no second derivative; while explaining, smooth ones
        stand for them. ``"auto"`` chooses the sharpness from what enters each kink, a float is the beta of
        the softplus that stands for ReLU, None leaves kinks as they are.
    engine
        How local interactions are computed: ``"structured"`` (the fast way, for networks of linear maps and
        elementwise functions), ``"exact"`` (two backward passes), ``"difference"`` (mixed differences, for black boxes
        and discrete inputs), ``"stein"`` (gradients under noise), an instance of one of these from
        :mod:`geh_explain.engines`, or ``"auto"``: the first of these that fits.

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
        layer: str | nn.Module | Layer | None = None,
        *,
        units: Units | None = None,
        output: Output = "raw",
        posterior: Posterior | None = None,
        smooth: str | float | None = "auto",
        engine: str | Engine = "auto",
    ) -> None:
        self.model = as_module(model)
        self.site = find_layer(self.model, layer)
        if units is not None and not isinstance(units, Units):
            raise GEHTypeError(
                f"units={units!r} is not a unit set; use an instance of one of geh_explain.units, such as Channels()."
            )
        check_output(output)
        check_smooth(smooth)
        check_engine(engine)
        check_posterior(posterior, self.site)
        self._bench = Workbench(self.model, self.site, units, output, posterior, smooth, engine)

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
        eah_points: int | None = None,
        memory: float | None = None,
        seed: int = 0,
        progress: bool = True,
        checkpoint: str | os.PathLike[str] | None = None,
        distributed: bool | None = None,
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
        eah_points
            From how many points, chosen anew for each draw, EAH is measured; None for all of them, or for very many
            units as many as do not slow the rest down. AEH and GEH are always over all points.
        memory
            How many GB the work and its result may take; None for half of what is free. Where the draws of all pairs do
            not fit, their means and standard deviations are kept only.
        seed
            Same seed, same draws.
        progress
            Show a progress bar.
        checkpoint
            A folder where draws are kept as they are finished: the same call goes on where it was interrupted or
            killed, and gives what it would have given. Without it, too, Ctrl-C returns the draws that are finished.
        distributed
            Under ``torchrun``, or where ``torch.distributed`` is set up, all ranks share the draws (and points) of a
            call that all of them make, and all get the result. False: this process explains alone.

        Examples
        --------
        >>> import torch, geh_explain as geh
        >>> explainer = geh.GEHExplainer(lambda x: 2 * x[:, 0] * x[:, 1], posterior=geh.posterior.PointEstimate())
        >>> result = explainer.explain(torch.randn(40, 3), groups=1, names=["a", "b", "c"], progress=False)
        >>> result.top(1)[["unit_i", "unit_j", "mean"]].round(3).values.tolist()
        [['a', 'b', 2.0]]
        """
        draws, seed = check_int("draws", draws, 1), check_int("seed", seed, 0)
        half = half_precision(self.model)
        ranks = find_rank_group(distributed)
        kept = None if checkpoint is None else Checkpoint(checkpoint)
        with borrow(self.model):
            job = self._bench.prepare(
                *(inputs, target, additional_forward_args, groups, batch_size, seed, None, eah_points, memory),
                *(kept, ranks),
            )
            if kept is not None or ranks.size > 1:
                asked = {"target": target, "additional_forward_args": additional_forward_args, "groups": groups}
                asked |= {"scale": scale, "batch_size": batch_size, "eah_points": eah_points, "memory": memory}
                about = self._bench.about(job, **asked, seed=seed)
                ranks.check_same({**about, "draws": draws, "checkpoint": kept is None})
                if kept is not None:
                    ranks.on_rank0(partial(kept.claim, about, job.budget))
            unit_names = job.cut.unit_names(names)
            self._bench.run(job, draws, scale, batch_size, seed, progress)
            notes = notes_on(job, chosen=self._bench.posterior is None, by_hand=not isinstance(groups, str))
        if half is not None:
            notes.append(f"model: it is in {half}, and was explained in torch.float32.")
        settings = {
            **settings_of(job, self._bench.output, self._bench.smooth),
            "target": describe(target),
            "groups": describe(groups),
            "group_count": len(job.collected.grouping.names),
            "draws": job.collected.count,
            "draws_kept": job.collected.moments is None,
            "scale": describe(scale),
            "batch_size": describe(batch_size),
            "eah_points": min(job.engine.absolute_points or len(job.points), len(job.points)),
            "seed": seed,
            "warnings": notes,
        }
        grouping = job.collected.grouping
        record = RunRecord(**settings)
        result = Interactions(job.collected.result(), grouping.labels, unit_names, grouping.names, record)
        notes += unsettled(result)
        for note in notes if ranks.first else ():
            warn(note)
        return result

    def diagnose(
        self,
        inputs: Any,
        y: Any,
        target: Target = None,
        additional_forward_args: Any = None,
        *,
        draws: int = 100,
        batch_size: int | None = None,
        seed: int = 0,
        progress: bool = True,
    ) -> Diagnosis:
        """See how well each draw of the posterior fits data with known targets ``y``, and whether it is calibrated.

        A posterior whose draws do not fit the data says nothing about the network; see :class:`Diagnosis`.

        >>> import torch, geh_explain as geh
        >>> net = torch.nn.Sequential(torch.nn.Linear(3, 8), torch.nn.Dropout(0.1), torch.nn.Linear(8, 1))
        >>> x, y = torch.randn(60, 3), torch.randn(60, 1)
        >>> geh.GEHExplainer(net).diagnose(x, y, draws=10, progress=False).errors.shape
        (10,)
        """
        draws, seed = check_int("draws", draws, 1), check_int("seed", seed, 0)
        with borrow(self.model):
            points, cut = self._bench.cut(inputs, target, additional_forward_args)
            posterior = self._bench.posterior_of(cut, points)
            return diagnose(cut, points, posterior, y, self._bench.output, draws, batch_size, seed, progress)

    def choose_groups(
        self,
        inputs: Any,
        target: Target = None,
        additional_forward_args: Any = None,
        *,
        max_groups: int = MAX_GROUPS,
        draws: int = PILOT_DRAWS,
        scale: str | Sequence[float] | NDArray[np.floating[Any]] | None = None,
        batch_size: int | None = None,
        seed: int = 0,
        progress: bool = True,
    ) -> GroupChoice:
        """Choose the number of groups by the rank weighted distance (the paper's equation 7).

        One pass over the data gives the scores for 1 to ``max_groups`` groups. The result has ``delta``,
        ``chosen`` and ``plot()``; ``explain(groups="auto")`` makes the same choice.

        >>> import torch, geh_explain as geh
        >>> model = lambda x: x[:, 0] ** 2 * x[:, 1]  # the sign of the interaction is that of x0
        >>> explainer = geh.GEHExplainer(model, posterior=geh.posterior.PointEstimate())
        >>> explainer.choose_groups(torch.randn(200, 2), max_groups=8, progress=False).chosen > 1
        True
        """
        max_groups, draws, seed = (
            check_int("max_groups", max_groups, 2),
            check_int("draws", draws, 1),
            check_int("seed", seed, 0),
        )
        with borrow(self.model):
            job = self._bench.prepare(inputs, target, additional_forward_args, "auto", batch_size, seed, max_groups)
            job.collected.pilot = draws
            self._bench.run(job, draws, scale, batch_size, seed, progress)
        assert job.collected.choice is not None
        return job.collected.choice

    def screen(
        self,
        inputs: Any,
        target: Target = None,
        additional_forward_args: Any = None,
        *,
        keep: int = 50,
        draws: int = 10,
        scale: str | Sequence[float] | NDArray[np.floating[Any]] | None = "std",
        batch_size: int | None = None,
        seed: int = 0,
        progress: bool = True,
    ) -> Subset:
        """Return the ``keep`` units that matter most, the strongest first, to explain next.

        Units are ranked by their mean absolute gradient over points and draws, times what ``scale`` says (their
        standard deviation by default), or by the dropout rate the model has learned for each input, where it has.
        The cost does not grow with the number of pairs. A unit that matters only where another one moves has a
        gradient too, so that interactions are not lost; one whose effect no point shows is.

        >>> import torch, geh_explain as geh
        >>> model = lambda x: x[:, 3] * x[:, 70] + x[:, 5]
        >>> x = torch.randn(50, 100)
        >>> explainer = geh.GEHExplainer(model, posterior=geh.posterior.PointEstimate())
        >>> sorted(explainer.screen(x, keep=3, progress=False).indices)
        [3, 5, 70]
        """
        keep, draws, seed = check_int("keep", keep, 1), check_int("draws", draws, 1), check_int("seed", seed, 0)
        batch_size = None if batch_size is None else check_int("batch_size", batch_size, 1)
        with borrow(self.model):
            points, cut = self._bench.cut(inputs, target, additional_forward_args)
            posterior = self._bench.posterior_of(cut, points)
            importance = learned_rates(cut)
            if importance is None:
                with steady(posterior, self.model, seed):
                    factors = np.abs(unit_factors(cut, points, scale, batch_size))
                importance = factors * expected_gradients(cut, points, posterior, draws, batch_size, seed, progress)
            else:
                importance = 1 - importance
        strongest = np.argsort(-importance, kind="stable")[:keep]
        return Subset(strongest, cut.units, importance[strongest])
