"""Explanations of several targets in one run."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import torch

from geh_explain.data.target_choice import SingleTarget, TargetChoice, TargetedPoints
from geh_explain.errors import warn
from geh_explain.evidence.explained import Explained
from geh_explain.evidence.held_out import MAX_TESTED, HeldOutRows, HeldOutTest, check_shared_arguments
from geh_explain.explainer.base import strongest_pairs
from geh_explain.explainer.finished_run import make_result
from geh_explain.model.preserve import half_precision, preserved
from geh_explain.results.by_target import InteractionsByTarget
from geh_explain.results.interactions import Interactions
from geh_explain.run.group_sample import sample_groups
from geh_explain.run.identity import claim_run
from geh_explain.run.loop import run_draws
from geh_explain.run.options import AnalysisOptions, RunOptions
from geh_explain.run.plan import RunPlan, make_plan
from geh_explain.run.record import make_record
from geh_explain.run.resources import run_resources
from geh_explain.run.setup import ModelSetup
from geh_explain.run.several_targets import check_several, done_of, plan_targets, split_draws
from geh_explain.run.source import ResultSource
from geh_explain.run.warnings import collect_warnings


def explain_targets(
    setup: ModelSetup, inputs: Any, options: RunOptions, choice: TargetChoice, evidence: Any
) -> InteractionsByTarget:
    """Explain several targets at the same points, in the same groups and draws.

    Parameters
    ----------
    setup
        What the explainer was built with.
    inputs, evidence
        As in :meth:`~geh_explain.GEHExplainer.explain`.
    options
        Options of the call, without a target.
    choice
        The targets.
    """
    check_several(options)
    half = half_precision(setup.model)
    with preserved(setup.model), run_resources(options) as resources:
        memory = None if options.memory is None else resources.budget
        points, cut = setup.read(inputs, None, options.additional_forward_args, memory)
        with torch.no_grad():
            targets = choice.resolve(cut.all_outputs(points.first))
        outputs = list(targets.values())
        if evidence is not None:
            HeldOutRows.of(evidence, outputs[0], None)  # raises if these are no rows and labels
            if len(evidence) == 2 and options.additional_forward_args is not None:
                check_shared_arguments(points)
        tests = [] if evidence is None else _prepare_tests(setup, evidence, options, outputs)
        first = replace(options, target=outputs[0])
        plans = plan_targets(setup, make_plan(setup, TargetedPoints(points, outputs[0]), first, resources), outputs)
        for test in tests:
            test.check_columns(plans.joint.points.columns)
        claim_run(setup, plans.joint)
        done = run_draws(plans.joint)
        draws = split_draws(done.accumulator.result(), plans.single)
        messages = [
            collect_warnings(setup, plan, done_of(done, part, plan.factors), part, half)
            for plan, part in zip(plans.single, draws, strict=True)
        ]
        info = sample_groups(plans.joint, done.accumulator.grouping)
    _warn(messages, list(targets), plans.joint.ranks.first)
    grouping, results = done.accumulator.grouping, []
    for plan, part, own in zip(plans.single, draws, messages, strict=True):
        record = make_record(setup, plan, done.accumulator, own)
        # Options as they were passed: those of a plan have no labels of rows of weight 0.
        source = ResultSource.of(setup, inputs, replace(options, target=plan.options.target), plan.points)
        results.append(make_result(plan, part, grouping, info, record, source))
    try:
        with preserved(setup.model):
            for place, test in enumerate(tests):
                results[place] = _tested(results[place], plans.single[place], test, grouping, options.progress)
    except KeyboardInterrupt:
        warn("evidence: the tests were interrupted; some targets have none. explainer.test(result, X, y) adds it.")
    return InteractionsByTarget(dict(zip(targets, results, strict=True)))


def _prepare_tests(
    setup: ModelSetup, evidence: Any, options: RunOptions, targets: Sequence[SingleTarget]
) -> list[HeldOutTest]:
    """Read held-out rows and labels for each target: its class against all others."""
    reading = AnalysisOptions(1, options.batch_size, options.seed, options.progress)
    rows = [HeldOutRows.of(evidence, target, options.additional_forward_args) for target in targets]
    return [HeldOutTest.prepare(setup, each, reading) for each in rows]


def _tested(result: Interactions, plan: RunPlan, test: HeldOutTest, grouping: Any, progress: bool) -> Interactions:
    """Return the result of one target with evidence from held-out labels."""
    explained = Explained.of(plan.cut, plan.points, grouping, result.signed_means[0], plan.factors)
    return result.with_evidence(test.run(result.pairs, strongest_pairs(result, MAX_TESTED), explained, progress))


def _warn(messages: list[list[str]], targets: list[Any], first_rank: bool) -> None:
    """Issue the warnings of all targets: those that all have once, others with their targets."""
    for message in dict.fromkeys(message for own in messages for message in own) if first_rank else ():
        having = [target for target, own in zip(targets, messages, strict=True) if message in own]
        shown = ", ".join(map(repr, having[:8])) + ", ..." * (len(having) > 8)
        warn(message if len(having) == len(targets) else f"target {shown}: {message}")
