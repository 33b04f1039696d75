"""Further questions to the network of a result: the share of interactions, and triples of units."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from geh_explain.analyses.share import InteractionShare
from geh_explain.data.targets import Target
from geh_explain.errors import GEHValueError
from geh_explain.explainer.base import ExplainerBase
from geh_explain.model.preserve import preserved
from geh_explain.results.interactions import Interactions
from geh_explain.results.measured import (
    PRECISION,
    SHARE_DRAWS,
    ShareArguments,
    measure_share,
    triple_table,
)
from geh_explain.run.options import Scale
from geh_explain.run.recorded_arguments import stored_scale
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
        args = self._target_of(result, target), additional_forward_args, clusters, None, batch_size
        source = ResultSource(self._setup, inputs, *args)
        self._count_rows(result, source)
        return measure_share(result, source, arguments)

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
        scale = stored_scale(result.record) if scale is None else scale
        args = self._target_of(result, target), additional_forward_args, clusters, scale, batch_size
        source = ResultSource(self._setup, inputs, *args)
        n_rows = self._count_rows(result, source)
        if n_rows != len(result.labels):
            raise GEHValueError(
                f"inputs: there are {n_rows} rows, and result is about {len(result.labels)} points in groups; give the "
                "inputs that were explained."
            )
        return triple_table(result, source, pairs, level, progress)

    def _count_rows(self, result: Interactions, source: ResultSource) -> int:
        """Return the number of rows of the inputs; raises if they have other units or columns than a result."""
        with preserved(self.model):
            points, cut = source.read()
            self._check_units(result, points, cut)
        return len(points)
