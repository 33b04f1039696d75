"""Sums of Hessians at a narrow layer, of the network of the current draw, without a pull-back to pairs of units."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor

from geh_explain._types import Floats, Ints
from geh_explain.data.rows import Rows
from geh_explain.engines.base import check_finite
from geh_explain.engines.structured.engine import StructuredRun
from geh_explain.engines.structured.recorder import UnsupportedOp
from geh_explain.engines.sums import sums_by_group


@dataclass(frozen=True)
class NarrowSums:
    """The Hessians of M groups at a narrow layer z = W t.

    Attributes
    ----------
    linear_map
        The map W (d, D), which all points share.
    hessians
        Sums (M, d, d) of the Hessians in z over the points of each group.
    """

    linear_map: Floats
    hessians: Floats

    @property
    def n_units(self) -> int:
        """Number of units D."""
        return int(self.linear_map.shape[1])

    def products(self, directions: Floats) -> Floats:
        """Return the products (M, k, D) of the sums of Hessians in t with k directions (k, D): W^T S_m W v."""
        return np.asarray((directions @ self.linear_map.T) @ self.hessians @ self.linear_map)


def sum_at_narrow_layer(engine: StructuredRun, chunks: Iterable[tuple[Rows, Ints]], n_groups: int) -> NarrowSums | str:
    """Return the sums over the ``chunks`` of rows and their labels, or why there are none, as a noun phrase.

    A network has no narrow layer if some units reach a curved function on another way than through W, or if W has more
    than half as many rows as columns.
    """
    linear_map: Tensor | None = None
    total = torch.zeros(0, dtype=torch.double)
    for rows, labels in chunks:
        if engine.unsupported is not None:
            return engine.unsupported
        try:
            ((local, _, outputs),) = engine.local_hessians(rows, [rows.target])
        except UnsupportedOp as unsupported:
            return str(unsupported)
        engine.check_outputs(rows, engine.cut.zeros(rows).requires_grad_(), outputs)
        engine.compare(rows, local)
        if engine.refuted:
            return "a function whose Hessian differs from that of autograd at some points"
        if local is None:
            continue
        if local.linear_map is None:
            return "units that do not all enter through one linear map into at most half as many entries"
        if linear_map is not None and not _are_same(linear_map, local.linear_map):
            return "units that enter through another linear map at other points"
        linear_map = local.linear_map
        members = torch.nn.functional.one_hot(
            torch.as_tensor(labels, device=linear_map.device).long(), n_groups
        ).T.double()
        found = sums_by_group(local.hessians.flatten(1)[None], members)[0].double().cpu()
        total = total + found if total.numel() else found
        check_finite(total, rows)
    if linear_map is None:
        return "second derivatives other than 0"
    width = len(linear_map)
    return NarrowSums(linear_map.double().cpu().numpy(), total.numpy().reshape(n_groups, width, width))


def _are_same(first: Tensor, second: Tensor) -> bool:
    """Return whether two linear maps are the same up to rounding, in which computing them again may differ."""
    tolerance = 16 * torch.finfo(first.dtype).eps * float(first.abs().max())
    return first.shape == second.shape and float((first - second).abs().max()) <= tolerance
