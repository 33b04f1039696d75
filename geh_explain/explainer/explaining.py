"""Explanations: the interactions of a network, their cost, and the number of groups."""

from __future__ import annotations

import os
from collections.abc import Sequence
from time import perf_counter
from typing import TYPE_CHECKING, Any, Literal, overload

from geh_explain.data.target_choice import ALL, TargetChoice
from geh_explain.data.targets import NumberedTarget, Target
from geh_explain.errors import warn
from geh_explain.evidence.explained import Explained
from geh_explain.evidence.held_out import MAX_TESTED, HeldOutRows, check_shared_arguments
from geh_explain.explainer.base import ExplainerBase, strongest_pairs
from geh_explain.explainer.explain_options import ExplainOptions, Targets
from geh_explain.explainer.finished_run import make_result
from geh_explain.explainer.several_targets import explain_targets
from geh_explain.groups.assignment import MAX_GROUPS
from geh_explain.groups.number import GroupChoice
from geh_explain.model.estimators import EstimatorModel
from geh_explain.model.preserve import half_precision, preserved
from geh_explain.results.by_target import InteractionsByTarget
from geh_explain.results.interactions import Interactions
from geh_explain.run.estimate import CostEstimate, estimate_cost
from geh_explain.run.group_sample import sample_groups
from geh_explain.run.identity import claim_run
from geh_explain.run.loop import run_draws
from geh_explain.run.options import RunOptions, Scale
from geh_explain.run.pair_request import PairRequest
from geh_explain.run.plan import PILOT_DRAWS, make_plan
from geh_explain.run.record import make_record
from geh_explain.run.resources import run_resources
from geh_explain.run.shards import make_shard_plan
from geh_explain.run.source import ResultSource
from geh_explain.run.warnings import collect_warnings
from geh_explain.units.subset import Subset

if TYPE_CHECKING:
    from typing_extensions import Unpack


class Explaining(ExplainerBase):
    """Methods of :class:`~geh_explain.GEHExplainer` that run all draws, or plan to."""

    @overload
    def explain(
        self,
        inputs: Any,
        target: NumberedTarget = ...,
        additional_forward_args: Any = ...,
        **options: Unpack[ExplainOptions],
    ) -> Interactions: ...
    # Before other texts, which are labels: the first overload that fits counts.
    @overload
    def explain(
        self, inputs: Any, target: Literal["all"], additional_forward_args: Any = ..., **options: Unpack[ExplainOptions]
    ) -> InteractionsByTarget: ...
    @overload
    def explain(
        self, inputs: Any, target: Target, additional_forward_args: Any = ..., **options: Unpack[ExplainOptions]
    ) -> Interactions: ...
    @overload
    def explain(
        self,
        inputs: Any,
        target: None = ...,
        additional_forward_args: Any = ...,
        *,
        targets: Targets,
        **options: Unpack[ExplainOptions],
    ) -> InteractionsByTarget: ...
    def explain(
        self,
        inputs: Any,
        target: Target = None,
        additional_forward_args: Any = None,
        *,
        groups: Any = "auto",
        clusters: Any = None,
        sample_weight: Any = None,
        draws: int | str = 100,
        names: Sequence[str] | None = None,
        scale: Scale = None,
        batch_size: int | None = None,
        eah_points: int | None = None,
        measures: Sequence[str] | None = None,
        memory: float | None = None,
        seed: int = 0,
        progress: bool = True,
        checkpoint: str | os.PathLike[str] | None = None,
        distributed: bool | str | None = None,
        evidence: tuple[Any, Any] | None = None,
        unit: int | str | None = None,
        pairs: Sequence[tuple[int | str, int | str]] | None = None,
        rows: Sequence[int | str] | Subset | str | None = None,
        targets: Targets | None = None,
    ) -> Interactions | InteractionsByTarget:
        """Measure the interactions of pairs of units over the points ``inputs``: of all, or of some of them.

        Parameters
        ----------
        inputs
            Tensor, ndarray, DataFrame, tuple of tensors, Dataset or DataLoader (of inputs, or of tuples whose first
            entry is the inputs), memory-mapped array, Dask array or Arrow data set.
        target
            Which output to explain, as in Captum: an int, a tuple, or one per row; None for one output. For classifiers
            with labels also a label; None for the second of two classes. ``"all"``: all outputs of a model with
            several, in one run, see ``targets``.
        additional_forward_args
            Further arguments of the model, as in Captum; those with one entry per row are split with the rows.
        groups
            The number of groups of points within which signs may cancel; ``"auto"`` chooses it; labels, one per row; a
            scikit-learn clusterer; or ``"pairwise"``: each pair has groups of its own, the halves of its two units, and
            of a third unit that changes it.
        clusters
            Labels, one per row, of points that are not independent: crops of one photograph, frames of one film, visits
            of one patient. Intervals and stable pairs then count whole clusters. None: all points are independent.
        sample_weight
            Weights of the rows, one number per row, 0 or more: all means over points are weighted means. Rows of weight
            0 are left out. Weights are those of a survey: a row of weight 2 stands for two, and is one observation.
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
        measures
            The measures that are wanted, such as ``("aeh", "geh")``. Without ``"eah"``, the only one that needs the
            interactions of each single point, runs over very many units are faster, and ``result.eah`` raises an error.
            With ``"eah"`` it is measured at all points. None: as ``eah_points`` says.
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
            a call that all of them make, and all get the result. False: this process works alone. ``"shards"``: each
            rank passes rows of its own, with the same columns, and all get the result of all rows.
        evidence
            Held-out rows and their labels, ``(X_held, y_held)``, **that training never used**: every pair is tested
            against them as by :meth:`test`, which has further options. They may be the same rows as ``inputs``. A third
            entry are their ``additional_forward_args``, where these belong to rows.
        unit
            A unit, by name or index, whose pairs with all others are computed. The work is that of one row of the
            Hessian instead of D. At most one of ``unit``, ``pairs`` and ``rows`` can be given; None computes all pairs.
        pairs
            Pairs of units, by name or index, such as ``[("age", "bmi"), (0, 3)]``, the only ones that are computed.
        rows
            Units, as a list of names or indices or as a :class:`~geh_explain.units.Subset` that :meth:`screen` returns:
            all pairs with an end among them are computed. ``"auto"`` searches for the units that the ten strongest
            pairs of the network without draws belong to, and computes all pairs where half of the units do not suffice.
        targets
            Several outputs, explained in one run: a list such as ``[0, 3, 7]``, or names and outputs,
            ``{"cat": 3, "dog": 5}``. The data are read once, groups are the same for all of them, and so are the draws
            of the network. (A list as ``target`` is one target per row.)

        Returns
        -------
        Interactions
            :class:`InteractionsByTarget`, a mapping from targets to these, with ``target="all"`` or ``targets``.
            Scores of the pairs with their uncertainty, tables, plots and a report. With ``evidence`` each pair has a
            slope and a p-value, and is significant or not at a false discovery rate. ``result.pairs`` are the pairs
            that were computed; error rates are over these, and the others are unknown, not 0.

        Examples
        --------
        >>> import torch, geh_explain as geh
        >>> model = lambda x: 2 * x[:, 0] * x[:, 1] + x[:, 2]
        >>> explainer = geh.GEHExplainer(model, posterior=geh.posterior.PointEstimate())
        >>> result = explainer.explain(torch.randn(40, 3), groups=1, names=["a", "b", "c"], progress=False)
        >>> result.top(1)[["unit_i", "unit_j", "mean"]].round(3).values.tolist()
        [['a', 'b', 2.0]]
        >>> result = explainer.explain(torch.randn(40, 3), groups=1, unit=1, progress=False)
        >>> result.geh.mean.round(3).tolist()  # the pairs of x1 only
        [[0.0, 2.0, nan], [2.0, 0.0, 0.0], [nan, 0.0, 0.0]]
        """
        if isinstance(self.model, EstimatorModel):
            by_label = self.model.targets_by_label(target, targets)
            target = target if by_label is targets or not isinstance(target, str) or target != ALL else None
            targets = by_label
        has_labels = isinstance(self.model, EstimatorModel) and self.model.classes is not None
        choice = TargetChoice.of(target, targets, labels=has_labels)
        target = None if choice is not None else target
        options = RunOptions(
            target=target,
            additional_forward_args=additional_forward_args,
            groups=groups,
            clusters=clusters,
            sample_weight=sample_weight,
            draws=draws,
            scale=scale,
            batch_size=batch_size,
            eah_points=eah_points,
            measures=measures,
            memory=memory,
            seed=seed,
            progress=progress,
            checkpoint=checkpoint,
            distributed=distributed,
            names=names,
            request=PairRequest(unit, pairs, rows),
        )
        if choice is not None:
            self._last_inputs = inputs
            return explain_targets(self._setup, inputs, options, choice, evidence)
        return self._explain_pairs(inputs, options, evidence)

    def _explain_pairs(self, inputs: Any, options: RunOptions, evidence: tuple[Any, ...] | None) -> Interactions:
        """Return the interactions of the pairs that the ``options`` ask for, of one target; see :meth:`explain`."""
        additional_forward_args = options.additional_forward_args
        half = half_precision(self.model)
        with preserved(self.model), run_resources(options) as resources:
            held_out = None
            if evidence is not None:
                held_rows = HeldOutRows.of(evidence, options.target, additional_forward_args)
                if len(evidence) == 2 and additional_forward_args is not None:
                    check_shared_arguments(self._setup.read(inputs, options.target, additional_forward_args)[0])
                held_out = self._held_out(held_rows, options)
            shards = options.shards and resources.ranks.size > 1
            plan = (make_shard_plan if shards else make_plan)(self._setup, inputs, options, resources)
            if held_out is not None:
                held_out.check_columns(plan.points.columns)
            claim_run(self._setup, plan)
            done = run_draws(plan)
            result_draws = done.accumulator.result()
            messages = collect_warnings(self._setup, plan, done, result_draws, half)
            info = sample_groups(plan, done.accumulator.grouping)
        record = make_record(self._setup, plan, done.accumulator, messages)
        for message in messages if plan.ranks.first else ():
            warn(message)
        self._last_inputs = inputs
        grouping = done.accumulator.grouping
        source = ResultSource.of(self._setup, inputs, options, plan.points)
        result = make_result(plan, result_draws, grouping, info, record, source)
        if held_out is None:
            return result
        try:
            with preserved(self.model):
                explained = None
                # True scores need groups that all pairs have in common, and all rows.
                if result.pair_cells is None and not shards:
                    explained = Explained.of(plan.cut, plan.points, grouping, result.signed_means[0], plan.factors)
                return result.with_evidence(
                    held_out.run(result.pairs, strongest_pairs(result, MAX_TESTED), explained, options.progress)
                )
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
        unit: int | str | None = None,
        pairs: Sequence[tuple[int | str, int | str]] | None = None,
        rows: Sequence[int | str] | Subset | str | None = None,
    ) -> CostEstimate:
        """Return what :meth:`explain` would cost with the same arguments, from one chunk of its first draw.

        The data are read and the run is planned as :meth:`explain` does, which takes a few forward passes of all
        points; then one chunk of points is explained.

        Parameters
        ----------
        inputs, target, additional_forward_args, groups, draws, scale, batch_size, eah_points, memory, seed
            As in :meth:`explain`.
        unit, pairs, rows
            As in :meth:`explain`; names are those of the columns, or the default ones.

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
            request=PairRequest(unit, pairs, rows),
        )
        start = perf_counter()
        with preserved(self.model), run_resources(options) as resources:
            plan = make_plan(self._setup, inputs, options, resources)
            return estimate_cost(plan, perf_counter() - start)

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
        """Choose the smallest number of groups whose scores reach 70 % of those with the largest number.

        One pass over the data per draw gives the scores for 1 to ``max_groups`` groups, and the rank weighted distances
        between them (the paper's equation 7). Scores are compared in the mean over pairs, and in sum. Numbers with
        fewer than ten distinct points per group are not chosen, unless they are at most 10.
        ``explain(groups="auto")`` makes the same choice.

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
