"""What a result was computed from, so that it can answer further questions about its network."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from geh_explain.data.points import Points
from geh_explain.data.targets import Target
from geh_explain.model.cut import Cut
from geh_explain.run.options import RunOptions, Scale
from geh_explain.run.setup import ModelSetup


@dataclass(frozen=True, eq=False, repr=False)
class ResultSource:
    """References to the network and the data of a run; they are neither copied nor written to files.

    Attributes
    ----------
    setup
        The arguments of the explainer, with the network.
    inputs, target, additional_forward_args, clusters, scale, batch_size
        As in :meth:`~geh_explain.GEHExplainer.explain`.
    """

    setup: ModelSetup
    inputs: Any
    target: Target = None
    additional_forward_args: Any = None
    clusters: Any = None
    scale: Scale = None
    batch_size: int | None = None

    @classmethod
    def of(cls, setup: ModelSetup, inputs: Any, options: RunOptions) -> ResultSource:
        """Return the source of a run with these options."""
        args = options.target, options.additional_forward_args, options.clusters, options.scale, options.batch_size
        return cls(setup, inputs, *args)

    def read(self) -> tuple[Points, Cut]:
        """Read the data and cut the model, as the run did."""
        return self.setup.read(self.inputs, self.target, self.additional_forward_args)
