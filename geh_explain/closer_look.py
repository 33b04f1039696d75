"""A closer look at what was explained: what units respond to, what two do together, and whether they really do."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from torch import nn

from geh_explain._validation import check_int
from geh_explain.analyses.ablation import Check, baseline_values, check_pairs
from geh_explain.analyses.surface import Surface, joint_effect
from geh_explain.data.targets import Target
from geh_explain.errors import GEHTypeError, GEHValueError
from geh_explain.interpret.exemplar_search import CandidateSearch
from geh_explain.interpret.gallery import Gallery
from geh_explain.interpret.gallery_building import ascent_options, build_gallery
from geh_explain.interpret.pair_selection import choose_pairs
from geh_explain.interpret.responses import HiddenUnits
from geh_explain.model.borrow import borrow
from geh_explain.model.layers import Layer, LayerRef
from geh_explain.model.unit_values import unit_moments
from geh_explain.results.interactions import Interactions
from geh_explain.run.workbench import Workbench
from geh_explain.scores.ranking import find_unit


class CloserLook:
    """The part of the explainer that looks at pairs it has found."""

    model: nn.Module
    site: LayerRef
    _bench: Workbench

    def interpret(
        self,
        result: Interactions,
        candidates: Any,
        pairs: int | Sequence[tuple[int | str, int | str]] = 2,
        *,
        joint: Any = None,
        k: int = 9,
        measure: str = "geh",
        reduce: str = "max",
        ascent: bool | dict[str, Any] = True,
        batch_size: int | None = None,
        seed: int = 0,
        progress: bool = True,
    ) -> Gallery:
        """Show what the hidden units of the strongest pairs respond to; the gallery has ``plot()`` and ``readings()``.

        Parameters
        ----------
        result
            What :meth:`explain` found.
        candidates
            Inputs among which those that excite a unit most are sought: tensor, ndarray, Dataset or DataLoader.
        pairs
            How many of the strongest pairs, or a list of pairs of units, by name or number.
        joint
            Inputs among which those that excite both units of a pair are sought; None for ``candidates``.
        k
            How many of them to show.
        measure
            By which the strongest pairs are chosen: ``"geh"``, ``"aeh"`` or ``"eah"``.
        reduce
            What stands for a unit that is a map: its ``"max"`` or its ``"mean"``.
        ascent
            Paint an input for each unit, and for both, by gradient ascent too; a dict holds options of
            :func:`geh_explain.interpret.maximise`.
        batch_size, seed, progress
            Candidates at a time, the noise of the ascent, and whether to show progress bars.

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
        search = CandidateSearch(check_int("k", k, 1), reduce, batch_size=batch_size, progress=progress)
        options = ascent_options(ascent, {"reduce": reduce, "seed": check_int("seed", seed, 0), "progress": progress})
        selection = choose_pairs(result, pairs, measure)
        site = None if self.site.module is None else Layer(self.site.module, self.site.pick, self.site.call)
        hidden = HiddenUnits(self.model, site, self._bench.units)
        return build_gallery(hidden, selection, candidates, joint, search, options)

    def check(
        self,
        result: Interactions,
        inputs: Any,
        target: Target = None,
        additional_forward_args: Any = None,
        *,
        measure: str = "geh",
        pairs: int = 100,
        baseline: Any = "mean",
        batch_size: int | None = None,
        seed: int = 0,
        progress: bool = True,
    ) -> Check:
        """See whether pairs with high scores really act jointly, at inputs that ``result`` has not seen.

        Units are switched off, alone and two at a time; what both do beyond the sum of what each does should be larger
        where scores are. The network answers without dropout.

        Parameters
        ----------
        result
            What :meth:`explain` found.
        inputs, target, additional_forward_args
            As in :meth:`explain`; other points than those, to learn something new.
        measure
            The scores to check: ``"geh"``, ``"aeh"`` or ``"eah"``.
        pairs
            How many pairs: half of them the strongest, the others drawn from the rest.
        baseline
            Where a unit is when it is off: its ``"mean"`` over the inputs, a number, or one for each unit.
        batch_size, seed, progress
            As in :meth:`explain`.

        Examples
        --------
        >>> import torch, geh_explain as geh
        >>> net = lambda x: x[:, 0] * x[:, 1] + x[:, 1] * x[:, 2] / 9 + x[:, 3]
        >>> explainer = geh.GEHExplainer(net, posterior=geh.posterior.PointEstimate())
        >>> result = explainer.explain(torch.randn(100, 4), groups=1, progress=False)
        >>> explainer.check(result, torch.randn(100, 4), progress=False).correlation > 0.9
        True
        """
        self._check_result(result)
        seed, pairs = check_int("seed", seed, 0), check_int("pairs", pairs, 3)
        batch_size = None if batch_size is None else check_int("batch_size", batch_size, 1)
        with borrow(self.model):
            points, cut = self._bench.cut(inputs, target, additional_forward_args)
            if cut.count != len(result.names):
                raise GEHValueError(
                    f"inputs: there are {cut.count} units, and result is about {len(result.names)}; give the same kind."
                )
            mean, _ = unit_moments(cut, points, batch_size)
            where = baseline_values(baseline, mean)
            return check_pairs(cut, points, result, measure, pairs, where, batch_size, seed, progress)

    def surface(
        self,
        inputs: Any,
        i: int | str,
        j: int | str,
        target: Target = None,
        additional_forward_args: Any = None,
        *,
        result: Interactions | None = None,
        grid: int = 25,
        background: int = 50,
        draws: int = 20,
        batch_size: int | None = None,
        seed: int = 0,
        progress: bool = True,
    ) -> Surface:
        """Show how the output depends on two units together, without what each does alone; it has ``plot()``.

        Parameters
        ----------
        inputs, target, additional_forward_args
            As in :meth:`explain`.
        i, j
            The two units, by name or number.
        result
            What :meth:`explain` found for the same inputs: its regions and their signed effects are shown too.
        grid
            Places for each unit, or all its values where there are fewer.
        background
            How many of the inputs, evenly from all, the other units are taken from; the response is their mean.
        draws, batch_size, seed, progress
            As in :meth:`explain`.

        Examples
        --------
        >>> import torch, geh_explain as geh
        >>> model = lambda x: x[:, 0] * x[:, 1] + x[:, 0] ** 2
        >>> explainer = geh.GEHExplainer(model, posterior=geh.posterior.PointEstimate())
        >>> surface = explainer.surface(torch.rand(200, 3), 0, 1, grid=5, progress=False)
        >>> twist = surface.values[-1, -1] - surface.values[-1, 0] - surface.values[0, -1] + surface.values[0, 0]
        >>> round(float(twist / (surface.first[-1] - surface.first[0]) / (surface.second[-1] - surface.second[0])), 3)
        1.0
        """
        grid, background = check_int("grid", grid, 2), check_int("background", background, 1)
        draws, seed = check_int("draws", draws, 1), check_int("seed", seed, 0)
        with borrow(self.model):
            points, cut = self._bench.cut(inputs, target, additional_forward_args)
            names = cut.unit_names(None if result is None else result.names)
            pair = find_unit(i, names), find_unit(j, names)
            if pair[0] == pair[1]:
                raise GEHValueError(f"i={i!r} and j={j!r} are the same unit; a surface needs two.")
            posterior = self._bench.posterior_of(cut, points)
            found = joint_effect(cut, points, posterior, pair, grid, background, draws, batch_size, seed, progress)
        return found if result is None else found.with_regions(result)

    def _check_result(self, result: Any) -> None:
        """Refuse what is no result of this explainer's layer."""
        if not isinstance(result, Interactions):
            raise GEHTypeError(f"result is a {type(result).__name__}, no result of explain().")
        layer, place = self.site.name or None, result.settings.get("layer")
        if layer != place:
            raise GEHValueError(
                f"result: it is about {place or 'the inputs'}, and this explainer about {layer or 'the inputs'}; use "
                "the explainer that made it."
            )
