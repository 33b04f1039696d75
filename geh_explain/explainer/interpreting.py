"""What the hidden units of the strongest pairs respond to."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from geh_explain._validation import check_int
from geh_explain.explainer.base import ExplainerBase
from geh_explain.interpret.diversity import cluster_codes
from geh_explain.interpret.exemplar_search import CandidateSearch
from geh_explain.interpret.gallery import Gallery
from geh_explain.interpret.gallery_building import ascent_options, build_gallery
from geh_explain.interpret.pair_selection import choose_pairs
from geh_explain.interpret.responses import HiddenUnits
from geh_explain.model.layers import Layer
from geh_explain.results.interactions import Interactions


class Interpreting(ExplainerBase):
    """The method of :class:`~geh_explain.GEHExplainer` that shows inputs to which units respond."""

    def interpret(
        self,
        result: Interactions,
        candidates: Any,
        pairs: int | Sequence[tuple[int | str, int | str]] = 2,
        *,
        joint: Any = None,
        k: int = 9,
        measure: str | None = None,
        reduce: str = "max",
        diverse: bool | None = None,
        clusters: Any = None,
        ascent: bool | dict[str, Any] = True,
        batch_size: int | None = None,
        seed: int = 0,
        progress: bool = True,
    ) -> Gallery:
        """Show what the hidden units of the strongest pairs respond to.

        Parameters
        ----------
        result
            What :meth:`explain` returned.
        candidates
            Inputs among which those with the largest activations are searched: tensor, ndarray, Dataset or DataLoader.
        pairs
            How many of the strongest pairs, or a list of pairs of units, by name or index.
        joint
            Inputs among which those that activate both units of a pair are searched; None for ``candidates``.
        k
            How many of them to show.
        measure
            By which the strongest pairs are chosen, as in ``result.table``; None for ``"supported"`` where there is
            evidence, else ``"geh"``.
        reduce
            How the map of a unit becomes one number: its ``"max"`` or its ``"mean"``.
        diverse
            Whether to show inputs that differ, chosen among the 4 k best, instead of the k best, which may be parts
            of one photograph. None: for images.
        clusters
            One label per candidate, such as the photograph it was cut from: the best candidate of each cluster is
            shown, then the second best, and so on.
        ascent
            Also synthesise an input for each unit, and for both, by gradient ascent; a dict holds options of
            :func:`geh_explain.interpret.maximise`. Candidates give the range and the statistics of images.
        batch_size, seed, progress
            Candidates at a time, the seed of the ascent, and whether to show progress bars.

        Returns
        -------
        Gallery
            It has ``plot()`` and ``readings()``.

        Examples
        --------
        >>> import torch, geh_explain as geh
        >>> from torch import nn
        >>> net = nn.Sequential(nn.Linear(3, 4), nn.Tanh(), nn.Linear(4, 4), nn.Tanh(), nn.Linear(4, 1))
        >>> explainer = geh.GEHExplainer(net, "1", posterior=geh.posterior.PointEstimate())
        >>> x = torch.randn(200, 3)
        >>> result = explainer.explain(x, groups=2, progress=False)
        >>> gallery = explainer.interpret(result, x, pairs=1, ascent=False, progress=False)
        >>> gallery.pairs[0].exemplars.inputs.shape
        torch.Size([2, 9, 3])
        """
        self._check_result(result)
        search = CandidateSearch(
            check_int("k", k, 1),
            reduce,
            batch_size=batch_size,
            progress=progress,
            diverse=diverse,
            clusters=cluster_codes(clusters),
        )
        options = ascent_options(ascent, {"seed": check_int("seed", seed, 0), "progress": progress})
        selection = choose_pairs(result, pairs, measure)
        ref = self._setup.layer_ref
        layer = None if ref.module is None else Layer(ref.module, ref.pick, ref.call)
        hidden = HiddenUnits(self.model, layer, self._setup.units)
        return build_gallery(hidden, selection, candidates, joint, search, options)
