"""Further questions to the network of a result: the share of interactions, and triples of units."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from geh_explain.analyses.share import InteractionShare
from geh_explain.data.targets import Target
from geh_explain.errors import GEHError, GEHTypeError, GEHValueError
from geh_explain.evidence.explained import recorded_target
from geh_explain.explainer.base import ExplainerBase
from geh_explain.results.interactions import Interactions
from geh_explain.results.measured import (
    PRECISION,
    SHARE_DRAWS,
    ShareArguments,
    measure_share,
    triple_table,
)
from geh_explain.run.options import Scale
from geh_explain.run.source import ResultSource

if TYPE_CHECKING:
    import pandas as pd


class Measuring(ExplainerBase):
    """Methods of :class:`~geh_explain.GEHExplainer` that measure more of the network of a result."""

    def share(
        self,
        result: Interactions,
        inputs: Any,
        target: Target = None,
        additional_forward_args: Any = None,
        *,
        pairs: int = 5,
        background: str = "permuted",
        draws: int = SHARE_DRAWS,
        precision: float = PRECISION,
        evaluations: int | None = None,
        clusters: Any = None,
        batch_size: int | None = None,
        progress: bool = True,
    ) -> InteractionShare:
        """Measure how much of the output's variance is interaction, for a result that does not know its network.

        ``result.share()`` does the same for a result that :meth:`explain` returned in this process. Printing the result
        and its page show the finding from then on.

        Parameters
        ----------
        result
            What :meth:`explain` returned, for instance loaded from a file.
        inputs, additional_forward_args, clusters, batch_size, progress
            As in :meth:`explain`; the same points, or others of their kind.
        target
            As in :meth:`explain`; None for that of ``result``.
        pairs, background, draws, precision, evaluations
            As in :meth:`Interactions.share`.

        Examples
        --------
        >>> import tempfile, torch, geh_explain as geh
        >>> explainer = geh.GEHExplainer(lambda x: x[:, 0] * x[:, 1], posterior=geh.posterior.PointEstimate())
        >>> x = torch.randn(1000, 2, generator=torch.Generator().manual_seed(0))
        >>> path = explainer.explain(x, groups=1, progress=False).save(f"{tempfile.mkdtemp()}/result.npz")
        >>> share = explainer.share(geh.Interactions.load(path), x, progress=False)
        >>> share.low < 1 < share.high
        True
        """
        self._check_result(result)
        arguments = ShareArguments(pairs, background, draws, precision, evaluations, progress)
        target = _target_of(result, target)
        args = additional_forward_args, clusters, None, batch_size
        return measure_share(result, ResultSource(self._setup, inputs, target, *args), arguments)

    def triples(
        self,
        result: Interactions,
        inputs: Any,
        target: Target = None,
        additional_forward_args: Any = None,
        *,
        pairs: int = 5,
        level: float = 0.95,
        scale: Scale = None,
        clusters: Any = None,
        batch_size: int | None = None,
        progress: bool = True,
    ) -> pd.DataFrame:
        """Return the third units that change the strongest pairs of a result that does not know its network.

        ``result.triples()`` does the same for a result that :meth:`explain` returned in this process.

        Parameters
        ----------
        result
            What :meth:`explain` returned, for instance loaded from a file.
        inputs, additional_forward_args, clusters, batch_size, progress
            As in the call that returned it.
        target, scale
            As in that call; None for those of ``result``.
        pairs, level
            As in :meth:`Interactions.triples`.

        Examples
        --------
        >>> import tempfile, torch, geh_explain as geh
        >>> explainer = geh.GEHExplainer(lambda x: x.prod(1), posterior=geh.posterior.PointEstimate())
        >>> x = torch.rand(50, 3)
        >>> path = explainer.explain(x, groups=1, progress=False).save(f"{tempfile.mkdtemp()}/result.npz")
        >>> table = explainer.triples(geh.Interactions.load(path), x, pairs=1, progress=False)
        >>> sorted(table.loc[0, ["unit_i", "unit_j", "unit_k"]]), round(float(table.loc[0, "mean"]), 4)
        (['x0', 'x1', 'x2'], 1.0)
        """
        self._check_result(result)
        scale = _scale_of(result) if scale is None else scale
        target = _target_of(result, target)
        n_rows = len(self._setup.read_points(inputs, target, additional_forward_args, None, "inputs"))
        if n_rows != len(result.labels):
            raise GEHValueError(
                f"inputs: there are {n_rows} rows, and result is about {len(result.labels)} points in groups; give the "
                "inputs that were explained."
            )
        source = ResultSource(self._setup, inputs, target, additional_forward_args, clusters, scale, batch_size)
        return triple_table(result, source, pairs, level, progress)


def _target_of(result: Interactions, target: Target) -> Target:
    """Return ``target``, or that of the result if it is None."""
    if target is not None:
        return target
    try:
        return recorded_target(result.record)
    except GEHError as error:
        raise GEHTypeError(
            "target=None: result was explained with a target per row, which it does not hold; give it again."
        ) from error


def _scale_of(result: Interactions) -> Scale:
    """Return the scale of a result, if its record holds it."""
    scale: Scale = result.record.scale
    if scale is None or scale == "std" or (isinstance(scale, list) and len(scale) == len(result.names)):
        return scale
    raise GEHValueError(f"scale=None: result has scale={scale!r}, whose numbers were not stored; give them again.")
