"""The identity of a run: what tells one run from another, for checkpoints and for ranks that share a run."""

from __future__ import annotations

from functools import partial
from typing import Any

import torch

from geh_explain._hashing import attribute_digests, digest, digest_state, digest_unless_plain
from geh_explain._version import __version__
from geh_explain.posterior import MCDropout, Posterior
from geh_explain.posterior.protocols import fixed
from geh_explain.run.plan import RunPlan
from geh_explain.run.setup import ModelSetup


def claim_run(setup: ModelSetup, plan: RunPlan) -> None:
    """Refuse ranks that were called differently, and a checkpoint folder that belongs to another run."""
    if plan.checkpoint is None and plan.ranks.size == 1:
        return
    identity = identify_run(setup, plan)
    plan.ranks.check_same({**identity, "draws": plan.options.draws, "checkpoint": plan.checkpoint is None})
    if plan.checkpoint is not None:
        plan.ranks.on_rank0(partial(plan.checkpoint.claim, identity, plan.budget))


def identify_run(setup: ModelSetup, plan: RunPlan) -> dict[str, Any]:
    """Return everything that the draws of a run depend on, as plain values or hashes of larger ones.

    The number of draws is not part of it: more draws continue a run. Functions are identified by their names only; what
    they and the network compute is compared draw by draw, see ``stored_draws``.
    """
    options = plan.options
    arguments = ["target", "additional_forward_args", "groups", "clusters", "scale", "batch_size", "eah_points"]
    # Not in the identity of older checkpoints.
    arguments += ["measures"] * (options.measures is not None)
    return {
        "geh_explain": __version__,
        "torch": torch.__version__,
        "model": _identify_model(setup, plan),
        "layer": plan.cut.place,
        "units": digest_unless_plain(setup.units),
        "output": digest_unless_plain(setup.output),
        "posterior": digest(_without_search(plan.posterior)),
        "smooth": digest_unless_plain(setup.smooth),
        "engine": repr(plan.engine.engine),
        "inputs": plan.points.digest(),
        "sample_weight": None if plan.grouping.weights is None else digest(plan.grouping.weights),
        "pairs": None if plan.pairs.complete else digest(*plan.pairs.ends),
        **{name: digest_unless_plain(getattr(options, name)) for name in (*arguments, "memory", "seed")},
    }


def _without_search(posterior: Posterior) -> Posterior:
    """Return a posterior without what was found in the model, which has a hash of its own."""
    return posterior.with_train_only(None) if isinstance(posterior, MCDropout) else posterior


@torch.no_grad()
def _identify_model(setup: ModelSetup, plan: RunPlan) -> str:
    """Return the hash of the model's parameters, buffers, settings and attributes.

    Attributes that a forward pass changes are left out: counters, caches and stored activations depend on what the
    process computed before.
    """
    model, rows = setup.model, plan.points.first
    with fixed(plan.posterior, model, plan.options.seed):
        plan.cut.outputs(rows[:1])
        before = attribute_digests(model)
        plan.cut.outputs(rows)
        after = attribute_digests(model)
    return digest(digest_state(model), {name: value for name, value in before.items() if after.get(name) == value})
