"""The record of a training run."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from geh_explain.bnn.fit_check import FitCheck
from geh_explain.plots.training_curve import draw_training_curve

if TYPE_CHECKING:
    import pandas as pd


@dataclass(frozen=True)
class History:
    """Losses by epoch, and the epoch whose weights the network has.

    Attributes
    ----------
    task : str
        ``"regression"`` or ``"classification"``.
    train : list of float
        Mean objective of each epoch: negative log likelihood plus divergence from the prior.
    validation : list of float
        Error of the mean network on held-out rows, after each epoch: root mean squared error for regression,
        cross-entropy for classification, negative log likelihood where the variance is learned.
    best_epoch : int
        Number of the epoch, from 0, whose weights were kept; -1 before the first epoch ended.
    noise : float or None
        Root mean squared residual of a regression on held-out rows, in units of the target.
    interrupted : bool
        Training was stopped by the keyboard.
    check : FitCheck or None
        What the network explains of held-out rows, beside an additive model and boosted trees; None after fewer than 50
        epochs, with fewer than 30 held-out rows, and for inputs that are no table.

    Examples
    --------
    >>> import torch, geh_explain as geh
    >>> x = torch.rand(100, 2)
    >>> history = geh.bnn.fit(geh.bnn.HybridNet(2, hidden=(4,)), x, x.prod(1), epochs=3, progress=False)
    >>> history.task, len(history.train)
    ('regression', 3)
    """

    task: str
    train: list[float] = field(default_factory=list)
    validation: list[float] = field(default_factory=list)
    best_epoch: int = -1
    noise: float | None = None
    interrupted: bool = False
    check: FitCheck | None = None

    @property
    def best(self) -> float:
        """Validation error of the weights that were kept."""
        return self.validation[self.best_epoch]

    def table(self) -> pd.DataFrame:
        """Return the losses as a DataFrame with the columns train and validation, one row per epoch."""
        import pandas as pd

        return pd.DataFrame({"train": self.train, "validation": self.validation}).rename_axis("epoch")

    def plot(self, *, ax: Any = None) -> Any:
        """Draw the validation error by epoch on ``ax`` (or a new figure), mark the best epoch, and return the axes."""
        return draw_training_curve(self.validation, self.best_epoch, ax=ax)

    def __repr__(self) -> str:
        outcome = f"epoch {self.best_epoch} kept, validation error {self.best:.4g}" if self.validation else "no epoch"
        return f"History({self.task}, {len(self.train)} epochs, {outcome}{', interrupted' if self.interrupted else ''})"
