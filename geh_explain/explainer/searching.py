"""The search for the strongest pairs among very many units."""

from __future__ import annotations

import os
from collections.abc import Sequence
from typing import Any

from geh_explain._validation import check_int
from geh_explain.data.target_choice import TargetChoice
from geh_explain.data.targets import Target
from geh_explain.engines.difference import Difference
from geh_explain.engines.stein.engine import Stein
from geh_explain.errors import GEHValueError
from geh_explain.explainer.explaining import Explaining
from geh_explain.model.estimators import EstimatorModel
from geh_explain.results.interactions import Interactions
from geh_explain.run.options import RunOptions, Scale
from geh_explain.run.pair_request import PairRequest
from geh_explain.run.pair_search import no_second_derivatives


class Searching(Explaining):
    """Method of :class:`~geh_explain.GEHExplainer` that searches for pairs."""

    def search(
        self,
        inputs: Any,
        target: Target = None,
        additional_forward_args: Any = None,
        *,
        top: int = 100,
        groups: Any = "auto",
        clusters: Any = None,
        sample_weight: Any = None,
        draws: int | str = 100,
        names: Sequence[str] | None = None,
        scale: Scale = None,
        batch_size: int | None = None,
        eah_points: int | None = None,
        memory: float | None = None,
        seed: int = 0,
        progress: bool = True,
        checkpoint: str | os.PathLike[str] | None = None,
        distributed: bool | None = None,
        evidence: tuple[Any, Any] | None = None,
    ) -> Interactions:
        """Find the strongest pairs among very many units, and measure the interactions of these pairs only.

        The pairs are those with the largest GEH of the network without draws. They are then measured in all draws, as
        ``explain(pairs=[...])`` does; their order in the result is that of the mean over draws. No array with an entry
        for each pair of units is made, so that 100,000 inputs are possible. The network without draws is ``model`` with
        its own weights, also with an ensemble; a warning says if its interactions are not those of the draws.

        - Where all units enter through one linear map into a narrow layer, of at most half as many entries, the pairs
          are found exactly: Hessians are summed at the narrow layer in one pass over the points, and blocks of pairs
          whose bound is below the last of the strongest pairs are left out.
        - Other networks are searched by products of Hessians with random directions: units with strong pairs are
          compared with all others until no other pair exceeds the strongest ones, with 95 % confidence. Where more than
          1,024 units are needed, a warning says how strong the other pairs may be.
        - Models without second derivatives are refused.

        ``result.settings["row_search"]`` says which of them it was, and what it found.

        Parameters
        ----------
        inputs, target, additional_forward_args
            As in :meth:`explain`; one target.
        top
            How many pairs. Posterior draws may change their order, and a pair that is weaker without draws may belong
            to the strongest with them: search for more pairs than you need.
        groups, clusters, sample_weight, draws, names, scale, batch_size, eah_points, memory, seed, progress
            As in :meth:`explain`. ``groups="auto"`` chooses the number of groups before the search, by the pairs of
            some strong units without draws; ``"pairwise"`` is not possible.
        checkpoint, distributed, evidence
            As in :meth:`explain`. The search is repeated when a checkpoint is resumed, and by each rank.

        Returns
        -------
        Interactions
            The ``top`` pairs, ``result.pairs``. Tables, plots, the page and files are those of any result of some
            pairs. Error rates and decisions are about these pairs: they were chosen at the same points, so that their
            scores are those of the strongest of very many; ``evidence``, rows which the search does not see, tests them
            without this selection.

        Examples
        --------
        >>> import torch, geh_explain as geh
        >>> from torch import nn
        >>> net = nn.Sequential(nn.Linear(2000, 20), nn.Tanh(), nn.Linear(20, 1))
        >>> explainer = geh.GEHExplainer(net, posterior=geh.posterior.PointEstimate())
        >>> x = torch.randn(50, 2000)
        >>> result = explainer.search(x, top=5, groups=1, progress=False)
        >>> len(result.table()), result.pairs.n_units
        (5, 2000)
        >>> strongest = explainer.explain(x, groups=1, progress=False).table().head(5)  # of 1,999,000 pairs
        >>> strongest["unit_i"].tolist() == result.table()["unit_i"].tolist()
        True
        """
        self._check_searchable(target)
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
            memory=memory,
            seed=seed,
            progress=progress,
            checkpoint=checkpoint,
            distributed=distributed,
            names=names,
            request=PairRequest(top=check_int("top", top, 1)),
        )
        return self._explain_pairs(inputs, options, evidence)

    def _check_searchable(self, target: Target) -> None:
        """Raise for several targets, and for engines and models without second derivatives."""
        estimator = isinstance(self.model, EstimatorModel)
        if TargetChoice.of(target, None, labels=estimator) is not None:
            raise GEHValueError(
                f"target={target!r}: search() finds the strongest pairs of one target; call it for each of them."
            )
        engine = self._setup.engine
        if estimator or engine in ("difference", "stein") or isinstance(engine, (Difference, Stein)):
            what = f"a {type(self.model.estimator).__name__}" if isinstance(self.model, EstimatorModel) else ""
            raise GEHValueError(no_second_derivatives(what or f"engine={engine!r}"))
