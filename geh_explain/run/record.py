"""The record of a run: what was asked for, and what was done, as values that JSON can hold."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field, fields, replace
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

from geh_explain._hashing import digest
from geh_explain._version import __version__
from geh_explain.engines.difference import DifferenceRun
from geh_explain.groups.grouping import are_labels
from geh_explain.model.estimators import model_name
from geh_explain.run.accumulate import DrawAccumulator
from geh_explain.run.plan import RunPlan
from geh_explain.run.setup import ModelSetup

#: First word of the warnings of a test on held-out labels.
TEST_WARNING = "evidence: "


@dataclass(frozen=True)
class RunRecord:
    """Everything that identifies a run, as values that JSON can hold.

    Users see it as the plain dict ``result.settings``. Every field has a default, so that files written by an earlier
    version, which may lack some fields, can still be read.
    """

    geh_explain: str = ""
    torch: str = ""
    model: str = "a network"
    #: Hash of the model's parameters; empty if unknown.
    parameters: str = ""
    #: Where the units are, in words: "the inputs" or "layer 'conv2'".
    place: str = "the inputs"
    #: Dotted name of the layer, None for the inputs.
    layer: str | None = None
    pick: Any = None
    call: int | None = None
    units: str = ""
    output: Any = "raw"
    posterior: str = "unknown"
    #: Which layers are the same in all draws of MC dropout, in words; None where there is nothing to say.
    random_part: str | None = None
    #: Name of the engine that did the work, its repr, and why it was chosen.
    engine: str = ""
    engine_settings: str = ""
    engine_reason: str = ""
    #: Indices of units that jump between observed levels (difference engine), else None.
    jumping_units: list[int] | None = None
    smooth: Any = None
    #: How smoothing changed the output, None where nothing was smoothed.
    smoothed: dict[str, Any] | None = None
    device: str = "cpu"
    dtype: str = "float32"
    #: Number of rows of the data, those of weight 0 among them.
    points: int = 0
    #: Hash of the inputs of all points; empty if unknown.
    inputs: str = ""
    #: Number of points of equal weight that tell as much, after Kish; None where all points count alike.
    effective_points: float | None = None
    #: Names of the columns of the points, if they came as a data frame.
    columns: list[str] | None = None
    target: Any = None
    #: Whether the target has one entry per row; None where files do not say.
    target_per_row: bool | None = None
    groups: Any = None
    #: Whether the groups are labels that the user gave.
    groups_given: bool = False
    group_count: int = 0
    #: Number of clusters of points, None where points are independent.
    clusters: int | None = None
    draws: int = 0
    #: False where only means and standard deviations over draws were kept.
    draws_kept: bool = True
    scale: Any = None
    batch_size: Any = None
    #: Number of points per draw from which EAH is measured.
    eah_points: int | None = None
    #: The argument ``measures`` of the run: names, or None for all three.
    measures: list[str] | None = None
    seed: int = 0
    #: Which pairs were computed, as the call said it, and how many of them; None for all pairs.
    pair_request: str | None = None
    known_pairs: int | None = None
    #: What the search for rows found, in words, with rows="auto"; else None.
    row_search: str | None = None
    warnings: list[str] = field(default_factory=list)

    def with_test_warnings(self, warnings: Sequence[str]) -> RunRecord:
        """Return the record with the ``warnings`` of a test on held-out labels, instead of those of a former test."""
        own = [message for message in self.warnings if not message.startswith(TEST_WARNING)]
        return replace(self, warnings=[*own, *warnings])

    def to_settings(self) -> dict[str, Any]:
        """Return the record as a plain dict, as users see it and as files store it."""
        return asdict(self)

    @classmethod
    def from_settings(cls, settings: Mapping[str, Any]) -> RunRecord:
        """Return the record that a dict describes; keys of other versions are ignored."""
        names = {entry.name for entry in fields(cls)}
        return cls(**{key: value for key, value in settings.items() if key in names})


def digest_parameters(model: nn.Module) -> str:
    """Return the hash of the names and values of a model's parameters."""
    return digest(dict(model.named_parameters()))


def describe(value: Any) -> Any:
    """Return ``value`` unchanged if JSON can hold it, else a description of it."""
    if isinstance(value, (Tensor, np.ndarray, np.generic)):
        value = value.tolist()
    if value is None or isinstance(value, (str, bool, int, float)):
        return value
    if isinstance(value, (list, tuple)):
        return [describe(entry) for entry in value] if len(value) <= 1000 else f"{len(value)} values"
    return repr(value)


def describe_posterior(posterior: Any) -> str:
    """Return the repr of a posterior, or its class name where it defines no repr."""
    plain = getattr(type(posterior), "__repr__", None) is object.__repr__
    return f"{type(posterior).__name__}()" if plain else repr(posterior)


def make_record(setup: ModelSetup, plan: RunPlan, accumulator: DrawAccumulator, warnings: list[str]) -> RunRecord:
    """Return the record of a finished run.

    Parameters
    ----------
    setup
        The arguments of the explainer.
    plan
        What was to be done: points, groups, posterior and engine as they were chosen.
    accumulator
        What was done: the draws, and the number of groups if it was chosen on the way.
    warnings
        Messages of the warnings of the run.
    """
    cut, options, engine = plan.cut, plan.options, plan.engine
    return RunRecord(
        geh_explain=__version__,
        torch=str(torch.__version__),
        model=model_name(cut.model),
        parameters=digest_parameters(setup.model),
        place=cut.place,
        layer=cut.name or None,
        pick=describe(cut.layer_ref.pick),
        call=cut.layer_ref.call,
        units=repr(cut.units),
        output=describe(setup.output),
        posterior=describe_posterior(plan.posterior),
        random_part=plan.dropout_places.describe(),
        engine=engine.name,
        engine_settings=repr(engine.engine),
        engine_reason=engine.fallback_reason or plan.engine_reason,
        jumping_units=sorted(engine.jumps) if isinstance(engine, DifferenceRun) else None,
        smooth=describe(setup.smooth),
        smoothed=plan.smoothed,
        device=str(cut.device),
        dtype=str(cut.dtype).removeprefix("torch."),
        points=plan.weights.rows,
        effective_points=plan.weights.effective,
        inputs=plan.points.digest(),
        columns=plan.points.columns,
        target=describe(setup.target_label(options.target)),
        target_per_row=plan.points.first.forward_args.per_row[0],
        groups=describe(options.groups),
        groups_given=are_labels(options.groups),
        group_count=len(accumulator.grouping.names),
        clusters=plan.n_clusters,
        draws=accumulator.n_draws,
        draws_kept=accumulator.moments is None,
        scale=describe(options.scale),
        batch_size=describe(options.batch_size),
        eah_points=engine.n_eah_points,
        measures=None if options.measures is None else list(options.measures),
        seed=options.seed,
        pair_request=options.request.describe(),
        known_pairs=None if plan.pairs.complete else len(plan.pairs),
        row_search=None if plan.search is None else plan.search.describe(),
        warnings=warnings,
    )
