"""Accounts of single predictions."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from tqdm.auto import tqdm

from geh_explain._validation import check_int
from geh_explain.data.targets import Target
from geh_explain.errors import GEHValueError, warn
from geh_explain.explainer.base import ExplainerBase
from geh_explain.local.baselines import (
    ReferenceData,
    as_rows,
    check_columns,
    columns_of,
    in_order_of,
    read_baseline,
    row_shapes,
)
from geh_explain.local.computation import LocalRun
from geh_explain.local.explanation import LocalExplanation, LocalExplanations
from geh_explain.local.integrated_hessians import MAX_STEPS
from geh_explain.model.preserve import preserved
from geh_explain.posterior.protocols import n_available
from geh_explain.run.options import AnalysisOptions


class RowExplaining(ExplainerBase):
    """Methods of :class:`~geh_explain.GEHExplainer` that explain single predictions."""

    def explain_row(
        self,
        x_row: Any,
        target: Target = None,
        additional_forward_args: Any = None,
        *,
        baseline: Any = "mean",
        data: Any = None,
        draws: int = 100,
        steps: int | None = None,
        names: Sequence[str] | None = None,
        batch_size: int | None = None,
        seed: int = 0,
        progress: bool = True,
    ) -> LocalExplanation | LocalExplanations:
        """Explain one prediction: main effects and pairs that lead from a reference to the output.

        The contributions are integrated Hessians along the straight path from a baseline to the row; see
        :class:`~geh_explain.LocalExplanation` for the formula. Black boxes, and explainers with
        ``engine="difference"``, switch units between baseline and row instead, which suits binary columns and
        categories, too. Other engines make no difference: second derivatives come from double backward.

        Parameters
        ----------
        x_row
            The row, with or without a batch dimension: a tensor, array, Series or data frame, or a tuple of tensors.
            Several rows are explained each by itself.
        target, additional_forward_args
            As in :meth:`explain`; those of the row are used for baselines and data, too.
        baseline
            Where the path begins: ``"mean"`` of the data, ``"zeros"`` or a number, a row, or a sample of rows, over
            which the account is averaged. At a hidden layer mean and numbers are values of the layer, and rows are
            inputs whose activations are the baseline.
        data
            Rows for the mean baseline, and for the sharpness with which kinked functions are smoothed. None: the inputs
            of the last :meth:`explain` of this explainer. The rows that are explained never count.
        draws
            Posterior draws K.
        steps
            Nodes of the Gauss rule along the path; None doubles them until two rules agree, up to 2,048.
        names
            Names of the units; by default the columns of the row's data frame, or of that of the data.
        batch_size
            Rows per call of the model; None chooses it from the memory of a row.
        seed
            Seed of the draws.
        progress
            Show a progress bar.

        Returns
        -------
        LocalExplanation or LocalExplanations
            The account of the row; for several rows a sequence of accounts. Intervals are over draws, and over
            baselines where a sample is given; a point estimate with one baseline has none.

        Examples
        --------
        >>> import torch, geh_explain as geh
        >>> explainer = geh.GEHExplainer(lambda x: x[:, 0] * x[:, 1] + x[:, 2], posterior=geh.posterior.PointEstimate())
        >>> data = torch.tensor([[0.0, 0.0, 0.0], [2.0, 2.0, 2.0]])  # the mean is (1, 1, 1)
        >>> local = explainer.explain_row(torch.tensor([2.0, 3.0, 5.0]), data=data, progress=False)
        >>> local.prediction, local.reference
        (11.0, 2.0)
        >>> local.main[["unit", "mean"]].round(4).values.tolist()
        [['x2', 4.0], ['x1', 2.5], ['x0', 1.5]]
        >>> local.pairs["mean"].round(4).tolist()  # half of (2 - 1) (3 - 1)
        [1.0, 0.0, 0.0]
        """
        options = AnalysisOptions(draws, batch_size, seed, progress)
        if steps is not None and check_int("steps", steps, 1) > MAX_STEPS:
            raise GEHValueError(f"steps={steps} must be at most {MAX_STEPS}.")
        known = in_order_of(x_row, data if data is not None else self._last_inputs, "data")
        baseline = in_order_of(x_row, baseline, "baseline")
        with preserved(self.model):
            given = as_rows(x_row, row_shapes(known))
            rows = self._setup.read_points(given, target, additional_forward_args, None, "x_row")
            cut = self._setup.cut(rows, columns_of(known))
            reference = ReferenceData(self._setup, known)
            if data is not None:
                reference.check(rows.first, rows.columns)
            else:
                check_columns("data=None: the inputs of the last explain(...)", columns_of(known), rows.columns)
            start = read_baseline(baseline, self._setup, rows.first[:1], rows.columns)
            start.check_categories(cut, rows)
            run = LocalRun(
                setup=self._setup,
                cut=cut,
                posterior=self._setup.posterior_for(cut, rows),
                names=cut.unit_names(names),
                baseline=start,
                data=reference,
                options=options,
                steps=steps,
            )
            total = len(rows) * min(draws, n_available(run.posterior, draws))
            with tqdm(total=total, desc="explaining", unit="draw", disable=not progress, leave=False) as bar:
                chunks = rows.split(run.rows_at_once(rows.first))
                accounts = [account for chunk in chunks for account in run.explain(chunk, bar.update)]
        for message in dict.fromkeys(message for account in accounts for message in account.warnings):
            warn(message)
        return accounts[0] if len(accounts) == 1 else LocalExplanations(accounts)
