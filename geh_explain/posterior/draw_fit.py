"""How well draws of a classifying head fit the data, beside the network itself."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

#: Rows on which draws are compared with the network, at most.
_MAX_ROWS = 1024
#: Draws fit badly if they lose more than this share of what the network gains over a constant.
_MAX_LOST = 0.5


class KeptRows:
    """Up to 1,024 rows at equal distances: features (n, F), logits (n, C) of the network, and classes (n,).

    >>> kept = KeptRows()
    >>> kept.add(torch.zeros(3000, 1), torch.arange(3000.0)[:, None], torch.zeros(3000))
    >>> kept.logits[:3, 0].tolist(), len(kept.labels)
    ([0.0, 4.0, 8.0], 750)
    """

    def __init__(self) -> None:
        self._parts: list[tuple[Tensor, Tensor, Tensor]] = []
        self._stride = 1
        self._seen = 0

    def add(self, features: Tensor, logits: Tensor, labels: Tensor) -> None:
        """Add the next rows."""
        start = -self._seen % self._stride
        chosen = slice(start, None, self._stride)
        # Copies: views would keep all rows in memory.
        self._parts.append((features[chosen].clone(), logits[chosen].clone(), labels[chosen].clone()))
        self._seen += len(labels)
        while -(-self._seen // self._stride) > _MAX_ROWS:
            features, logits, labels = (torch.cat(parts) for parts in zip(*self._parts, strict=True))
            self._parts = [(features[::2], logits[::2], labels[::2])]
            self._stride *= 2

    @property
    def features(self) -> Tensor:
        """Features (n, F)."""
        return torch.cat([part[0] for part in self._parts])

    @property
    def logits(self) -> Tensor:
        """Logits (n, C)."""
        return torch.cat([part[1] for part in self._parts])

    @property
    def labels(self) -> Tensor:
        """Classes (n,)."""
        return torch.cat([part[2] for part in self._parts])


@dataclass(frozen=True)
class DrawFit:
    """Mean cross-entropy and share of right predictions.

    Attributes
    ----------
    network, draws, constant
        Mean cross-entropy of the network, of draws of its head, and of the shares of the classes.
    network_accuracy, draws_accuracy
        Share of rows that the network and the draws predict right.
    """

    network: float
    draws: float
    constant: float
    network_accuracy: float
    draws_accuracy: float

    @property
    def is_poor(self) -> bool:
        """Whether draws lose more than half of what the network gains over a constant."""
        return self.draws - self.network > _MAX_LOST * (self.constant - self.network)


def measure_draw_fit(rows: KeptRows, changes: Sequence[Tensor]) -> DrawFit:
    """Return the fit of draws of a head to rows.

    Parameters
    ----------
    rows
        The rows.
    changes
        For each draw the change (C, F) of the map from features to logits.
    """
    features, logits, labels = rows.features, rows.logits, rows.labels
    shares = torch.bincount(labels, minlength=max(2, logits.shape[1])).double() / len(labels)
    constant = -float((shares * shares.clamp_min(1e-300).log()).sum())
    network = _loss_and_accuracy(logits, labels)
    of_draws = [_loss_and_accuracy(logits + features @ change.T, labels) for change in changes]
    loss, accuracy = (sum(values) / len(of_draws) for values in zip(*of_draws, strict=True))
    return DrawFit(network[0], loss, constant, network[1], accuracy)


def _loss_and_accuracy(logits: Tensor, labels: Tensor) -> tuple[float, float]:
    """Return mean cross-entropy and share of right predictions; a single logit is that of class 1."""
    both = torch.cat([torch.zeros_like(logits), logits], dim=1) if logits.shape[1] == 1 else logits
    loss = torch.nn.functional.cross_entropy(both, labels)
    return float(loss), float((both.argmax(1) == labels).double().mean())
