"""Tests of pairs against labels that training never used."""

from __future__ import annotations

from typing import Any

import numpy as np

from geh_explain._validation import check_int
from geh_explain.data.case_weights import CaseWeights
from geh_explain.data.points import Points
from geh_explain.data.targets import Target
from geh_explain.errors import GEHValueError
from geh_explain.evidence.explained import Explained, GroupMeans, recorded_factors, recorded_target
from geh_explain.evidence.held_out import MAX_TESTED, HeldOutRows
from geh_explain.explainer.base import ExplainerBase, strongest_pairs
from geh_explain.groups.grouping import Grouping
from geh_explain.model.cut import Cut
from geh_explain.model.preserve import preserved
from geh_explain.results.interactions import Interactions
from geh_explain.run.options import AnalysisOptions
from geh_explain.scores.evidence import Evidence
from geh_explain.units.pair_set import PairSet


class HeldOutTesting(ExplainerBase):
    """Methods of :class:`~geh_explain.GEHExplainer` that test pairs on held-out labels."""

    def test(
        self,
        result: Interactions,
        inputs: Any,
        y: Any,
        additional_forward_args: Any = None,
        *,
        sample_weight: Any = None,
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
        sample_weight
            Weights of the held-out rows, one number per row, 0 or more: weighted least squares with robust errors. Rows
            of weight 0 are left out.
        train
            Inputs of the training rows. Held-out rows that are among them are counted in a warning.
        explained
            The inputs of :meth:`explain`, to estimate the true scores at these points, with intervals.
        link
            ``"identity"`` if the output is the mean of the labels, ``"logit"`` if it is the log-odds of label 1;
            ``"auto"`` chooses: for two classes and one output, the one that fits better.
        pairs
            At most how many pairs are tested, the strongest by GEH among those of ``result``.
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
        if result.pair_cells is not None:
            check_not_explained(explained)
        target = recorded_target(result.record)
        rows = HeldOutRows(inputs, y, target, additional_forward_args, link, train, sample_weight=sample_weight)
        with preserved(self.model):
            held_out = self._held_out(rows, options)
            if held_out.n_units != len(result.names):
                raise GEHValueError(
                    f"inputs: there are {held_out.n_units} units, and result is about {len(result.names)}; give rows "
                    "of the same kind."
                )
            held_out.check_units(result.record.units)
            held_out.check_columns(result.record.columns)
            means = result.signed_means[0]
            points_of_result: Explained | GroupMeans | None = GroupMeans(result.group_shares, means)
            if result.pair_cells is not None:
                points_of_result = None
            if explained is not None:
                points, cut = self._setup.read(explained, target, additional_forward_args, argument="explained")
                if cut.n_units != len(result.names):
                    raise GEHValueError(
                        f"explained: there are {cut.n_units} units, and result is about {len(result.names)}; give the "
                        "inputs that were explained."
                    )
                held_out.check_columns(points.columns)
                points_of_result = self._explained(result, cut, points)
            return result.with_evidence(
                held_out.run(result.pairs, strongest_pairs(result, pairs), points_of_result, progress)
            )

    def _explained(self, result: Interactions, cut: Cut, points: Points) -> Explained:
        """Return the points of a result, out of the rows that were explained."""
        if len(points) != len(result.labels):
            raise GEHValueError(
                f"explained: it has {len(points)} rows, and result is about {len(result.labels)}; give the inputs that "
                "were explained."
            )
        weights = CaseWeights(len(points)) if result.sample_weight is None else CaseWeights.of(result.sample_weight)
        points, labels = weights.points(points), result.labels[result.labels >= 0]
        factors = recorded_factors(result.record, cut, points, weights.values)
        grouping = Grouping(labels, result.group_names, weights.values)
        return Explained.of(cut, points, grouping, result.signed_means[0], factors)

    def test_pairs(
        self,
        inputs: Any,
        y: Any,
        target: Target = None,
        additional_forward_args: Any = None,
        *,
        sample_weight: Any = None,
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
            rows = HeldOutRows(inputs, y, target, additional_forward_args, link, sample_weight=sample_weight)
            held_out = self._held_out(rows, options)
            pairs = PairSet.all(held_out.n_units)
            return held_out.run(pairs, np.arange(len(pairs)), None, progress)


def check_not_explained(explained: Any) -> None:
    """Refuse points at which true scores would be estimated where each pair has groups of its own."""
    if explained is not None:
        raise GEHValueError(
            "explained: true scores are estimated in groups that all pairs have in common, and result has "
            "groups='pairwise'; leave explained=None, or explain with a number of groups."
        )
