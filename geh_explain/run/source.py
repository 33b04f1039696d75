"""What a result was computed from, so that it can answer further questions about its network."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from geh_explain._hashing import digest
from geh_explain._types import Floats
from geh_explain.data.case_weights import read_weights
from geh_explain.data.points import Points
from geh_explain.data.targets import Target
from geh_explain.errors import warn
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
    first_rows
        Hash of the inputs of the first rows; empty if unknown.
    sample_weight
        Case weights of the rows, as in the result.
    """

    setup: ModelSetup
    inputs: Any
    target: Target = None
    additional_forward_args: Any = None
    clusters: Any = None
    scale: Scale = None
    batch_size: int | None = None
    first_rows: str = ""
    sample_weight: Floats | None = None

    @classmethod
    def of(cls, setup: ModelSetup, inputs: Any, options: RunOptions, points: Points) -> ResultSource:
        """Return the source of a run with these options, whose points were read from ``inputs``."""
        args = options.target, options.additional_forward_args, options.clusters, options.scale, options.batch_size
        return cls(setup, inputs, *args, digest(*points.first.inputs))

    def read(self) -> tuple[Points, Cut]:
        """Read the data and cut the model, as the run did."""
        points, cut = self.setup.read(self.inputs, self.target, self.additional_forward_args)
        # Rows of weight 0 are no points of the run.
        argument = "inputs: result has case weights, and sample_weight"
        self.check_unchanged(read_weights(self.sample_weight, points, argument).points(points))
        return points, cut

    def check_unchanged(self, points: Points) -> None:
        """Warn if the points, read again, begin with other rows than those of the run."""
        if self.first_rows and digest(*points.first.inputs) != self.first_rows:
            warn(
                "inputs: their first rows have changed since the explanation, as the result holds a reference to them; "
                "the answer is about the rows as they are now. Explain again, or pass a copy to explain()."
            )
