"""Results of several targets of one call."""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from geh_explain._types import Ints
from geh_explain._validation import check_int
from geh_explain.errors import GEHValueError
from geh_explain.report.text import describe_scope
from geh_explain.results.interactions import Interactions
from geh_explain.results.target_files import read_targets, write_targets
from geh_explain.scores.pair_names import join_names

if TYPE_CHECKING:
    import pandas as pd

#: Targets that are printed.
_REPR_TARGETS = 20


class InteractionsByTarget(Mapping[Any, Interactions]):
    """Results of several targets, such as the classes of a network, by target.

    :meth:`GEHExplainer.explain` returns it for ``target="all"`` and ``targets=[...]``. All results have the same
    points, groups, units and draws of the network, so that their scores can be compared.

    Parameters
    ----------
    results
        Results by target, in order: its number, or the name that ``targets={"cat": 3}`` gave.

    Examples
    --------
    >>> import torch, geh_explain as geh
    >>> net = lambda x: torch.stack([x[:, 0] * x[:, 1] + x[:, 2], 3 * x[:, 1] * x[:, 2] + x[:, 0]], dim=1)
    >>> explainer = geh.GEHExplainer(net, posterior=geh.posterior.PointEstimate())
    >>> results = explainer.explain(torch.rand(40, 3), target="all", groups=1, progress=False)
    >>> list(results), results[1].geh.mean[1].round(3).tolist()
    ([0, 1], [0.0, 0.0, 3.0])
    >>> results.table()[["target", "unit_i", "unit_j", "mean"]].head(2).round(3).values.tolist()
    [[1, 'x1', 'x2', 3.0], [0, 'x0', 'x1', 1.0]]
    """

    def __init__(self, results: Mapping[Any, Interactions]) -> None:
        self._results: dict[Any, Interactions] = dict(results)

    def __getitem__(self, target: Any) -> Interactions:
        try:
            return self._results[target]
        except (KeyError, TypeError) as error:
            known = ", ".join(map(repr, list(self._results)[:_REPR_TARGETS]))
            raise TargetError(f"target {target!r} was not explained; there are {known}.") from error

    def __iter__(self) -> Iterator[Any]:
        return iter(self._results)

    def __len__(self) -> int:
        return len(self._results)

    @property
    def labels(self) -> Ints:
        """Group of each point (N,), the same for all targets; -1 for points of weight 0."""
        return next(iter(self._results.values())).labels

    def table(self, measure: str | None = None, **options: Any) -> pd.DataFrame:
        """Return one row per target and pair, the strongest first: ``target``, and the columns of the single tables.

        ``measure`` and ``options`` are those of :meth:`Interactions.table`. Decisions are those of each target alone:
        error rates are over the pairs of one target.
        """
        import pandas as pd

        parts = []
        for target, result in self.items():
            part = result.table(measure, **options)
            # One object per row: a tuple would be taken for several values.
            column = np.empty(len(part), dtype=object)
            column[:] = [target] * len(part)
            part.insert(0, "target", pd.Series(column).infer_objects())
            parts.append(part)
        table = pd.concat(parts, ignore_index=True)
        order = "supported" if "supported" in table and measure in (None, "supported") else "mean"
        return table.sort_values(order, ascending=False, kind="stable", ignore_index=True)

    def top(self, pairs: int = 10, measure: str | None = None, **options: Any) -> pd.DataFrame:
        """Return the first ``pairs`` rows of :meth:`table`."""
        return self.table(measure, **options).head(check_int("pairs", pairs, 1))

    def summary(self) -> pd.DataFrame:
        """Return one row per target: its strongest pair, the score, and how many pairs are significant or stable.

        The last column is missing where a rule cannot decide, with a single draw.
        """
        import pandas as pd

        rows = []
        for result in self.values():
            decisions = result.decisions()
            strongest = int(decisions.order[0])
            first, second = (result.names[int(ends[strongest])] for ends in result.pairs.ends)
            accepted = pd.NA if decisions.accepted is None else int(decisions.accepted.sum())
            name = "supported" if decisions.measure == "supported" else "mean"
            score = float(decisions.strength[strongest])
            rows.append({"strongest pair": join_names(first, second), name: score, decisions.column: accepted})
        return pd.DataFrame(rows, index=pd.Index(list(self), name="target", tupleize_cols=False))

    def save(self, folder: str | os.PathLike[str]) -> Path:
        """Write all results to a folder, one file per target, and return its path.

        >>> import tempfile, torch, geh_explain as geh
        >>> explainer = geh.GEHExplainer(lambda x: x * x.flip(1), posterior=geh.posterior.PointEstimate())
        >>> results = explainer.explain(torch.rand(20, 2), target="all", groups=1, progress=False)
        >>> geh.InteractionsByTarget.load(results.save(tempfile.mkdtemp())).table().equals(results.table())
        True
        """
        return write_targets(self, folder)

    @classmethod
    def load(cls, folder: str | os.PathLike[str]) -> InteractionsByTarget:
        """Read a folder written by :meth:`save`. Nothing in it is executed; damaged files raise ``GEHValueError``."""
        return cls(read_targets(folder))

    def __repr__(self) -> str:
        some = next(iter(self._results.values()))
        scope = describe_scope(some).removeprefix("Interactions between ")
        head = f"Interactions of {len(self)} target{'s' * (len(self) > 1)} between {scope}"
        table = self.summary().head(_REPR_TARGETS).to_string(float_format="{:.4g}".format)
        more = f"\n... and {len(self) - _REPR_TARGETS} more" if len(self) > _REPR_TARGETS else ""
        return f"{head}\n{table}{more}"


class TargetError(GEHValueError, KeyError):
    """A target that was not explained. Also a ``KeyError``, as mappings raise."""

    def __str__(self) -> str:
        return str(self.args[0])
