"""GEHExplainer: wraps a trained network and answers questions about its pairs of units.

This class wires the folders of the package together and holds no maths: each method reads its data, makes a plan, and
calls the function that does the work.
"""

from __future__ import annotations

import os
import warnings
from collections.abc import Callable, Sequence
from dataclasses import replace
from time import perf_counter
from typing import TYPE_CHECKING, Any

import numpy as np
from torch import nn

from geh_explain._types import Floats, Ints
from geh_explain._validation import check_int
from geh_explain.analyses.ablation import AblationCheck, AblationRequest, baseline_values, check_pairs
from geh_explain.analyses.diagnosis import Diagnosis, diagnose
from geh_explain.analyses.screening import screen_units
from geh_explain.analyses.sharpness import other_sharpnesses, sharpness_table
from geh_explain.analyses.surface import Surface, SurfaceRequest, joint_effect
from geh_explain.data.targets import Target
from geh_explain.engines.base import Engine
from geh_explain.engines.selection import check_engine
from geh_explain.engines.smoothing.sharpness import Smooth, check_smooth
from geh_explain.errors import GEHTypeError, GEHValueError, GEHWarning, warn
from geh_explain.evidence.explained import Explained, recorded_factors, recorded_target
from geh_explain.evidence.held_out import MAX_TESTED, HeldOutRows, HeldOutTest, check_shared_arguments
from geh_explain.groups.assignment import MAX_GROUPS
from geh_explain.groups.number import GroupChoice
from geh_explain.interpret.diversity import cluster_codes
from geh_explain.interpret.exemplar_search import CandidateSearch
from geh_explain.interpret.gallery import Gallery
from geh_explain.interpret.gallery_building import ascent_options, build_gallery
from geh_explain.interpret.pair_selection import choose_pairs
from geh_explain.interpret.responses import HiddenUnits
from geh_explain.model.layers import Layer, find_layer
from geh_explain.model.outputs import Output, check_output
from geh_explain.model.preserve import as_module, half_precision, preserved
from geh_explain.model.unit_values import unit_moments
from geh_explain.posterior import PointEstimate, Posterior
from geh_explain.posterior.default import check_posterior
from geh_explain.results.interactions import Interactions
from geh_explain.run.estimate import CostEstimate, estimate_cost
from geh_explain.run.identity import claim_run
from geh_explain.run.loop import run_draws
from geh_explain.run.options import AnalysisOptions, RunOptions, Scale
from geh_explain.run.plan import PILOT_DRAWS, make_plan, run_resources
from geh_explain.run.record import describe, digest_parameters, make_record
from geh_explain.run.setup import ModelSetup
from geh_explain.run.warnings import collect_warnings
from geh_explain.scores.evidence import Evidence
from geh_explain.scores.ranking import find_unit
from geh_explain.units.base import Units
from geh_explain.units.subset import Subset

if TYPE_CHECKING:
    import pandas as pd


class GEHExplainer:
    """Finds which pairs of inputs, or of hidden units, interact in a trained network.

    The local interaction of units i and j at a point x is H_ij(x) = d2 f / du_i du_j, for one scalar output f of the
    network. :meth:`explain` averages it over groups of points and over draws of a posterior::

        GEH_ij = sum over groups m of (n_m / N) |mean over x in group m of H_ij(x)|.

    Parameters
    ----------
    model
        Any ``nn.Module``; a plain callable is enough for the inputs. Its parameters, buffers, modes, hooks and whatever
        else it holds are the same after each call. Networks inside a callable keep their modes.
    layer
        None for the inputs, else a dotted name (``"layer3.1.conv2"``) or a module, whose output's units are explained;
        :class:`~geh_explain.Layer` for a layer that returns several tensors, or is called several times.
    units
        What one unit is, from :mod:`geh_explain.units`. None: features of the inputs, neurons, or channels of feature
        maps.
    output
        ``"raw"``, ``"probability"`` (sigmoid for one column, softmax for more) or a callable that turns the model's
        return value into a tensor.
    posterior
        Source of the uncertainty, from :mod:`geh_explain.posterior`. None: MC dropout if the model has dropout, else
        the point estimate, with a warning.
    smooth
        Kinked functions (ReLU, max pooling, ...) have no second derivative; during an explanation they are replaced by
        smooth ones. :class:`geh_explain.engines.Step` chooses the sharpness such that scores agree with mixed
        differences of the network itself at this step; ``"auto"`` is a step of half a standard deviation of the units,
        or sharper. A float is the beta of the softplus that replaces ReLU, None replaces nothing.
    engine
        How local interactions are computed: ``"structured"`` (fast, for networks of linear maps and elementwise
        functions), ``"exact"`` (two backward passes), ``"difference"`` (mixed differences, for black boxes and discrete
        inputs), ``"stein"`` (gradients under noise), an instance of one of these from :mod:`geh_explain.engines`, or
        ``"auto"``: structured, exact or difference, the first one that the model allows.

    Examples
    --------
    >>> import torch, geh_explain as geh
    >>> from torch import nn
    >>> net = nn.Sequential(nn.Linear(4, 32), nn.Tanh(), nn.Dropout(0.1), nn.Linear(32, 1))
    >>> explainer = geh.GEHExplainer(net)
    >>> explainer
    GEHExplainer(Sequential, the inputs)
    >>> result = explainer.explain(torch.randn(100, 4), groups=3, draws=50, progress=False)
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
        smooth: Smooth = "auto",
        engine: str | Engine = "auto",
    ) -> None:
        module = as_module(model)
        layer_ref = find_layer(module, layer)
        if units is not None and not isinstance(units, Units):
            raise GEHTypeError(
                f"units={units!r} is not a unit set; use an instance of one of geh_explain.units, such as Channels()."
            )
        check_output(output)
        check_smooth(smooth)
        check_engine(engine)
        check_posterior(posterior, layer_ref)
        self._setup = ModelSetup(module, layer_ref, units, output, posterior, smooth, engine)

    @property
    def model(self) -> nn.Module:
        """The network that is explained; a plain callable is wrapped into a module."""
        return self._setup.model

    @property
    def place(self) -> str:
        """Where the units are: ``"the inputs"`` or ``"layer 'conv2'"``."""
        return self._setup.layer_ref.place

    def __repr__(self) -> str:
        setup = self._setup
        options = {"units": setup.units, "posterior": setup.posterior}
        shown = "".join(f", {name}={value!r}" for name, value in options.items() if value is not None)
        return f"GEHExplainer({type(setup.model).__name__}, {self.place}{shown})"

    def explain(
        self,
        inputs: Any,
        target: Target = None,
        additional_forward_args: Any = None,
        *,
        groups: Any = "auto",
        clusters: Any = None,
        draws: int | str = 100,
        names: Sequence[str] | None = None,
        scale: Scale = None,
        batch_size: int | None = None,
        eah_points: int | None = None,
        memory: float | None = None,
        seed: int = 0,
        progress: bool = True,
        checkpoint: str | os.PathLike[str] | None = None,
        distributed: bool | None = None,
        evidence: tuple[Any, Any] | None = None,
    ) -> Interactions:
        """Measure the interactions of all pairs of units over the points ``inputs``.

        Parameters
        ----------
        inputs
            Tensor, ndarray, DataFrame, tuple of tensors, Dataset or DataLoader (of inputs, or of tuples whose first
            entry is the inputs).
        target
            Which output to explain, as in Captum: an int, a tuple, or one per row; None for one output.
        additional_forward_args
            Further arguments of the model, as in Captum; those with one entry per row are split with the rows.
        groups
            The number of groups of points within which signs may cancel; ``"auto"`` chooses it; labels, one per row; or
            a scikit-learn clusterer.
        clusters
            Labels, one per row, of points that are not independent: crops of one photograph, frames of one film, visits
            of one patient. Intervals and stable pairs then count whole clusters. None: all points are independent.
        draws
            Posterior draws K. The means settle at about 50, the standard deviations at about 400. ``"auto"`` takes 20
            draws, and further ones until the order of the ten strongest pairs is settled, at most 400.
        names
            Names of the units; a DataFrame's columns by default.
        scale
            ``"std"`` multiplies each unit by its standard deviation, which makes pairs comparable; an array multiplies
            by its entries; None leaves the units of measure as they are.
        batch_size
            Rows at a time; None chooses it from the free memory.
        eah_points
            Number of points, sampled anew for each draw, from which EAH is measured; None for all of them, or for very
            many units as many as do not slow the rest down. AEH and GEH are always over all points.
        memory
            GB that the work and its result may take; None for half of the free memory. Where the draws of all pairs do
            not fit, only their means and standard deviations are kept.
        seed
            Seed of the draws. The same seed gives the same result, whatever the batch size.
        progress
            Show a progress bar.
        checkpoint
            A folder that stores finished draws: the same call resumes bit-identically after an interruption or a kill.
            Without it, too, Ctrl-C returns the draws that are finished.
        distributed
            Under ``torchrun``, or where ``torch.distributed`` is initialised, all ranks share the draws (and points) of
            a call that all of them make, and all get the result. False: this process works alone.
        evidence
            Held-out rows and their labels, ``(X_held, y_held)``, **that training never used**: every pair is tested
            against them as by :meth:`test`, which has further options. They may be the same rows as ``inputs``. A third
            entry are their ``additional_forward_args``, where these belong to rows.

        Returns
        -------
        Interactions
            Scores of all pairs with their uncertainty, tables, plots and a report. With ``evidence`` each pair has a
            slope and a p-value, and is significant or not at a false discovery rate.

        Examples
        --------
        >>> import torch, geh_explain as geh
        >>> model = lambda x: 2 * x[:, 0] * x[:, 1] + x[:, 2]
        >>> explainer = geh.GEHExplainer(model, posterior=geh.posterior.PointEstimate())
        >>> result = explainer.explain(torch.randn(40, 3), groups=1, names=["a", "b", "c"], progress=False)
        >>> result.top(1)[["unit_i", "unit_j", "mean"]].round(3).values.tolist()
        [['a', 'b', 2.0]]
        """
        options = RunOptions(
            target=target,
            additional_forward_args=additional_forward_args,
            groups=groups,
            clusters=clusters,
            draws=draws,
            scale=scale,
            batch_size=batch_size,
            eah_points=eah_points,
            memory=memory,
            seed=seed,
            progress=progress,
            checkpoint=checkpoint,
            distributed=distributed,
        )
        half = half_precision(self.model)
        with preserved(self.model), run_resources(options) as resources:
            held_out = None
            if evidence is not None:
                rows = HeldOutRows.of(evidence, target, additional_forward_args)
                if len(evidence) == 2 and additional_forward_args is not None:
                    check_shared_arguments(self._setup.read(inputs, target, additional_forward_args)[0])
                held_out = self._held_out(rows, options)
            plan = make_plan(self._setup, inputs, options, resources)
            if held_out is not None:
                held_out.check_columns(plan.points.columns)
            claim_run(self._setup, plan)
            unit_names = plan.cut.unit_names(names)
            done = run_draws(plan)
            result_draws = done.accumulator.result()
            messages = collect_warnings(self._setup, plan, done, result_draws, half)
        record = make_record(self._setup, plan, done.accumulator, messages)
        for message in messages if plan.ranks.first else ():
            warn(message)
        grouping = done.accumulator.grouping
        result = Interactions(result_draws, grouping.labels, unit_names, grouping.names, record)
        if held_out is None:
            return result
        try:
            with preserved(self.model):
                explained = Explained.of(plan.cut, plan.points, result.labels, result.signed_means[0], plan.factors)
                return result.with_evidence(held_out.run(_strongest(result, MAX_TESTED), explained, progress))
        except KeyboardInterrupt:
            warn("evidence: the test was interrupted; the result has none. explainer.test(result, X, y) repeats it.")
            return result

    def estimate(
        self,
        inputs: Any,
        target: Target = None,
        additional_forward_args: Any = None,
        *,
        groups: Any = "auto",
        draws: int | str = 100,
        scale: Scale = None,
        batch_size: int | None = None,
        eah_points: int | None = None,
        memory: float | None = None,
        seed: int = 0,
    ) -> CostEstimate:
        """Return what :meth:`explain` would cost with the same arguments, from one chunk of its first draw.

        The data are read and the run is planned as :meth:`explain` does, which takes a few forward passes of all
        points; then one chunk of points is explained.

        Parameters
        ----------
        inputs, target, additional_forward_args, groups, draws, scale, batch_size, eah_points, memory, seed
            As in :meth:`explain`.

        Returns
        -------
        CostEstimate
            It has ``seconds`` and ``result_bytes``, and prints as a sentence.

        Examples
        --------
        >>> import torch, geh_explain as geh
        >>> net = torch.nn.Sequential(torch.nn.Linear(20, 50), torch.nn.Dropout(0.1), torch.nn.Tanh())
        >>> estimate = geh.GEHExplainer(net).estimate(torch.randn(500, 20), target=0, draws=50)
        >>> estimate.draws, estimate.pairs, estimate.seconds > 0
        (50, 190, True)
        """
        options = RunOptions(
            target=target,
            additional_forward_args=additional_forward_args,
            groups=groups,
            draws=draws,
            scale=scale,
            batch_size=batch_size,
            eah_points=eah_points,
            memory=memory,
            seed=seed,
            progress=False,
            distributed=False,
        )
        start = perf_counter()
        with preserved(self.model), run_resources(options) as resources:
            plan = make_plan(self._setup, inputs, options, resources)
            return estimate_cost(plan, perf_counter() - start)

    def test(
        self,
        result: Interactions,
        inputs: Any,
        y: Any,
        additional_forward_args: Any = None,
        *,
        train: Any = None,
        explained: Any = None,
        link: str = "auto",
        pairs: int = MAX_TESTED,
        batch_size: int | None = None,
        seed: int = 0,
        progress: bool = True,
    ) -> Interactions:
        """Test whether held-out labels support the interactions of a result, and return it with the evidence.

        **The rows must not have been used for training**: a network has adapted to the labels of its training rows, and
        p-values from them are far too small. Rows that chose the epoch of early stopping may be used.

        For each pair, the residuals of the labels from the network without this pair's interaction are regressed on
        that interaction, beside everything that other units and pairs may do. Slope 1 means that the labels contain the
        interaction at the network's size, 0 that they do not contain it. The p-value is one-sided. For a posterior with
        draws the mean function is tested. The cost is 8 forward passes of the rows per pair, and some more.

        Parameters
        ----------
        result
            What :meth:`explain` returned.
        inputs, additional_forward_args
            Held-out rows, as in :meth:`explain`.
        y
            Their labels, one per row. Numbers are compared with the output (regression); classes with its log-odds, for
            several logits with those of the explained class against all others, or with the probability, if that is
            explained.
        train
            Inputs of the training rows. Held-out rows that are among them are counted in a warning.
        explained
            The inputs of :meth:`explain`, to estimate the true scores at these points, with intervals.
        link
            ``"identity"`` if the output is the mean of the labels, ``"logit"`` if it is the log-odds of label 1;
            ``"auto"`` chooses: for two classes and one output, the one that fits better.
        pairs
            At most how many pairs are tested, the strongest by GEH.
        batch_size
            Rows of one call of the model; None for 8,192.
        seed
            Decides on background values, and on draws.
        progress
            Show a progress bar.

        Returns
        -------
        Interactions
            A new result, whose :meth:`~Interactions.table` has slope, slope_se, p_value and significant.

        Examples
        --------
        >>> import torch, geh_explain as geh
        >>> x = torch.randn(1000, 4, generator=torch.Generator().manual_seed(0))
        >>> y = x[:, 0] * x[:, 1] + x[:, 2] + torch.randn(1000, generator=torch.Generator().manual_seed(1))
        >>> model = lambda x: x[:, 0] * x[:, 1] + x[:, 2] + 0.3 * x[:, 2] * x[:, 3]  # x2 and x3 do not interact in y
        >>> explainer = geh.GEHExplainer(model, posterior=geh.posterior.PointEstimate())
        >>> result = explainer.explain(x, groups=1, progress=False)
        >>> table = explainer.test(result, x, y, progress=False).table()
        >>> table[table["significant"]][["unit_i", "unit_j"]].values.tolist()
        [['x0', 'x1']]
        """
        self._check_result(result)
        options = AnalysisOptions(1, batch_size, seed, progress)
        check_int("pairs", pairs, 1)
        target = recorded_target(result.record)
        rows = HeldOutRows(inputs, y, target, additional_forward_args, link, train)
        with preserved(self.model):
            held_out = self._held_out(rows, options)
            if held_out.n_units != len(result.names):
                raise GEHValueError(
                    f"inputs: there are {held_out.n_units} units, and result is about {len(result.names)}; give rows "
                    "of the same kind."
                )
            held_out.check_units(result.record.units)
            held_out.check_columns(result.record.columns)
            points_of_result = None
            if explained is not None:
                points, cut = self._setup.read(explained, target, additional_forward_args)
                held_out.check_columns(points.columns)
                factors = recorded_factors(result.record, cut, points)
                points_of_result = Explained.of(cut, points, result.labels, result.signed_means[0], factors)
            return result.with_evidence(held_out.run(_strongest(result, pairs), points_of_result, progress))

    def test_pairs(
        self,
        inputs: Any,
        y: Any,
        target: Target = None,
        additional_forward_args: Any = None,
        *,
        link: str = "auto",
        batch_size: int | None = None,
        seed: int = 0,
        progress: bool = True,
    ) -> Evidence:
        """Test all pairs of units against held-out labels, without an explanation; see :meth:`test`.

        Examples
        --------
        >>> import torch, geh_explain as geh
        >>> x = torch.randn(300, 2, generator=torch.Generator().manual_seed(0))
        >>> explainer = geh.GEHExplainer(lambda x: x[:, 0] * x[:, 1], posterior=geh.posterior.PointEstimate())
        >>> noise = torch.randn(300, generator=torch.Generator().manual_seed(1))
        >>> bool(explainer.test_pairs(x, x[:, 0] * x[:, 1] + noise, progress=False).p_value[0] < 0.001)
        True
        """
        options = AnalysisOptions(1, batch_size, seed, progress)
        with preserved(self.model):
            held_out = self._held_out(HeldOutRows(inputs, y, target, additional_forward_args, link), options)
            n_pairs = held_out.n_units * (held_out.n_units - 1) // 2
            return held_out.run(np.arange(n_pairs), None, progress)

    def choose_groups(
        self,
        inputs: Any,
        target: Target = None,
        additional_forward_args: Any = None,
        *,
        max_groups: int = MAX_GROUPS,
        draws: int = PILOT_DRAWS,
        scale: Scale = None,
        batch_size: int | None = None,
        seed: int = 0,
        progress: bool = True,
    ) -> GroupChoice:
        """Choose the number of groups by the rank weighted distance (the paper's equation 7).

        One pass over the data per draw gives the scores for 1 to ``max_groups`` groups. ``explain(groups="auto")``
        makes the same choice.

        Parameters
        ----------
        inputs, target, additional_forward_args, scale, batch_size, seed, progress
            As in :meth:`explain`.
        max_groups
            The largest number of groups that is tried.
        draws
            Number of posterior draws whose mean scores decide.

        Returns
        -------
        GroupChoice
            It has ``delta``, ``chosen`` and ``plot()``.

        Examples
        --------
        >>> import torch, geh_explain as geh
        >>> model = lambda x: x[:, 0] ** 2 * x[:, 1]  # the sign of the interaction is that of x0
        >>> explainer = geh.GEHExplainer(model, posterior=geh.posterior.PointEstimate())
        >>> explainer.choose_groups(torch.randn(200, 2), max_groups=8, progress=False).chosen > 1
        True
        """
        options = RunOptions(
            target=target,
            additional_forward_args=additional_forward_args,
            draws=draws,
            scale=scale,
            batch_size=batch_size,
            seed=seed,
            progress=progress,
            distributed=False,
            max_groups=max_groups,
            pilot_draws=draws,
        )
        with preserved(self.model), run_resources(options) as resources:
            accumulator = run_draws(make_plan(self._setup, inputs, options, resources)).accumulator
        assert accumulator.choice is not None
        return accumulator.choice

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

        Examples
        --------
        >>> import torch, geh_explain as geh
        >>> net = torch.nn.Sequential(torch.nn.Linear(3, 8), torch.nn.Dropout(0.1), torch.nn.Linear(8, 1))
        >>> x, y = torch.randn(60, 3), torch.randn(60, 1)
        >>> geh.GEHExplainer(net).diagnose(x, y=y, draws=10, progress=False).errors.shape
        (10,)
        """
        options = AnalysisOptions(draws, batch_size, seed, progress)
        with preserved(self.model):
            points, cut = self._setup.read(inputs, target, additional_forward_args)
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
            As in :meth:`explain`; other points than those.
        measure
            The scores to check: ``"geh"``, ``"aeh"`` or ``"eah"``.
        pairs
            How many pairs: half of them the strongest, the others drawn from the rest.
        baseline
            Value of a unit that is switched off: its ``"mean"`` over the inputs, a number, or one number per unit.

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
            points, cut = self._setup.read(inputs, target, additional_forward_args)
            if cut.n_units != len(result.names):
                raise GEHValueError(
                    f"inputs: there are {cut.n_units} units, and result is about {len(result.names)}; give the same "
                    "kind."
                )
            off = baseline_values(baseline, unit_moments(cut, points, batch_size).mean)
            request = AblationRequest(result.names, result.scores(measure).pair_mean, pairs, off)
            return check_pairs(cut, points, request, options)

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

        The network without draws is explained at twice and at half the sharpness, in the groups of ``result``. A pair
        that keeps its place is a property of the network; one that does not belongs to a step size.

        Parameters
        ----------
        result
            What :meth:`explain` returned.
        inputs, target, additional_forward_args, batch_size, progress
            As in the call that returned it.
        pairs
            How many of the strongest pairs by GEH.

        Returns
        -------
        DataFrame
            One row per pair, strongest first: ``unit_i``, ``unit_j``, ``score``, ``rank``, the same with ``_sharper``
            and ``_softer``, and ``keeps_place``: whether the pair is among the strongest at all three.

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
        sharper, softer = other_sharpnesses(self._setup.smooth, result.record.smooth, result.record.smoothed)
        groups = np.asarray(result.group_names, dtype=object)[result.labels]

        def scores(smooth: Smooth) -> Floats:
            explainer = GEHExplainer.__new__(GEHExplainer)
            explainer._setup = replace(self._setup, smooth=smooth, posterior=PointEstimate())
            options = {"groups": groups, "scale": result.record.scale, "batch_size": batch_size, "progress": progress}
            with warnings.catch_warnings():
                # The user has seen them; that a softer network differs more is the point.
                warnings.simplefilter("ignore", GEHWarning)
                return explainer.explain(inputs, target, additional_forward_args, **options).geh.pair_mean

        by_sharpness = scores(self._setup.smooth), scores(sharper), scores(softer)
        return sharpness_table(result.names, by_sharpness, pairs)

    def surface(
        self,
        inputs: Any,
        target: Target = None,
        additional_forward_args: Any = None,
        *,
        pair: tuple[int | str, int | str],
        result: Interactions | None = None,
        grid: int = 25,
        background: int = 50,
        draws: int = 20,
        batch_size: int | None = None,
        seed: int = 0,
        progress: bool = True,
    ) -> Surface:
        """Measure the joint effect of two units on a grid of their values, without their main effects.

        Parameters
        ----------
        inputs, target, additional_forward_args, draws, batch_size, seed, progress
            As in :meth:`explain`.
        pair
            The two units, by name or index.
        result
            What :meth:`explain` returned for the same inputs: its groups and their signed effects are drawn too.
        grid
            Number of grid values per unit, or all its values where there are fewer.
        background
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
        check_int("background", background, 1)
        if not isinstance(pair, (tuple, list)) or len(pair) != 2:
            raise GEHTypeError(f"pair={pair!r} must be two units, by name or index, such as pair=(0, 1).")
        options = AnalysisOptions(draws, batch_size, seed, progress)
        with preserved(self.model):
            points, cut = self._setup.read(inputs, target, additional_forward_args)
            names = cut.unit_names(None if result is None else result.names)
            first, second = (find_unit(unit, names) for unit in pair)
            if first == second:
                raise GEHValueError(f"pair={tuple(pair)!r} names the same unit twice; a surface needs two.")
            posterior = self._setup.posterior_for(cut, points)
            surface = joint_effect(cut, points, posterior, SurfaceRequest((first, second), grid, background), options)
        if result is None:
            return surface
        effects = result.regions(first, second)["mean"].to_numpy()
        return surface.with_groups((names[first], names[second]), result.labels, effects)

    def interpret(
        self,
        result: Interactions,
        candidates: Any,
        pairs: int | Sequence[tuple[int | str, int | str]] = 2,
        *,
        joint: Any = None,
        k: int = 9,
        measure: str | None = None,
        reduce: str = "max",
        diverse: bool | None = None,
        clusters: Any = None,
        ascent: bool | dict[str, Any] = True,
        batch_size: int | None = None,
        seed: int = 0,
        progress: bool = True,
    ) -> Gallery:
        """Show what the hidden units of the strongest pairs respond to.

        Parameters
        ----------
        result
            What :meth:`explain` returned.
        candidates
            Inputs among which those with the largest activations are searched: tensor, ndarray, Dataset or DataLoader.
        pairs
            How many of the strongest pairs, or a list of pairs of units, by name or index.
        joint
            Inputs among which those that activate both units of a pair are searched; None for ``candidates``.
        k
            How many of them to show.
        measure
            By which the strongest pairs are chosen, as in ``result.table``; None for ``"supported"`` where there is
            evidence, else ``"geh"``.
        reduce
            How the map of a unit becomes one number: its ``"max"`` or its ``"mean"``.
        diverse
            Whether to show inputs that differ, chosen among the 4 k best, instead of the k best, which may be parts
            of one photograph. None: for images.
        clusters
            One label per candidate, such as the photograph it was cut from: the best candidate of each cluster is
            shown, then the second best, and so on.
        ascent
            Also synthesise an input for each unit, and for both, by gradient ascent; a dict holds options of
            :func:`geh_explain.interpret.maximise`. Candidates give the range and the statistics of images.
        batch_size, seed, progress
            Candidates at a time, the seed of the ascent, and whether to show progress bars.

        Returns
        -------
        Gallery
            It has ``plot()`` and ``readings()``.

        Examples
        --------
        >>> import torch, geh_explain as geh
        >>> from torch import nn
        >>> net = nn.Sequential(nn.Linear(3, 4), nn.Tanh(), nn.Linear(4, 4), nn.Tanh(), nn.Linear(4, 1))
        >>> explainer = geh.GEHExplainer(net, "1", posterior=geh.posterior.PointEstimate())
        >>> x = torch.randn(200, 3)
        >>> result = explainer.explain(x, groups=2, progress=False)
        >>> gallery = explainer.interpret(result, x, pairs=1, ascent=False, progress=False)
        >>> gallery.pairs[0].exemplars.inputs.shape
        torch.Size([2, 9, 3])
        """
        self._check_result(result)
        search = CandidateSearch(
            check_int("k", k, 1),
            reduce,
            batch_size=batch_size,
            progress=progress,
            diverse=diverse,
            clusters=cluster_codes(clusters),
        )
        options = ascent_options(ascent, {"seed": check_int("seed", seed, 0), "progress": progress})
        selection = choose_pairs(result, pairs, measure)
        ref = self._setup.layer_ref
        layer = None if ref.module is None else Layer(ref.module, ref.pick, ref.call)
        hidden = HiddenUnits(self.model, layer, self._setup.units)
        return build_gallery(hidden, selection, candidates, joint, search, options)

    def _held_out(self, rows: HeldOutRows, options: AnalysisOptions | RunOptions) -> HeldOutTest:
        """Read and check held-out rows."""
        reading = AnalysisOptions(1, options.batch_size, options.seed, options.progress)
        return HeldOutTest.prepare(self._setup, rows, reading)

    def _check_result(self, result: Any) -> None:
        """Raise unless ``result`` is about the layer of this explainer; warn if it is about another network."""
        if not isinstance(result, Interactions):
            raise GEHTypeError(f"result is a {type(result).__name__}, no result of explain().")
        layer = self._setup.layer_ref.name or None
        if layer != result.record.layer:
            raise GEHValueError(
                f"result: it is about {result.record.layer or 'the inputs'}, and this explainer about "
                f"{layer or 'the inputs'}; use the explainer that made it."
            )
        output = describe(self._setup.output)
        if output != result.record.output:
            raise GEHValueError(
                f"result: it is about output={result.record.output!r}, and this explainer about output={output!r}; use "
                "the explainer that made it."
            )
        recorded = result.record.parameters
        if recorded and recorded != digest_parameters(self.model):
            warn(
                "result: it is about a network with other parameters than this explainer's; use the explainer that "
                "made it, or explain again."
            )


def _strongest(result: Interactions, pairs: int) -> Ints:
    """Return the indices of the strongest pairs by GEH."""
    return np.argsort(-result.geh.pair_mean, kind="stable")[:pairs]
