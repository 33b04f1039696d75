"""What happened while a network was fitted."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    import pandas as pd


@dataclass
class History:
    """Losses by epoch, and which epoch's weights the network has now.

    ``train`` is the mean objective (negative log likelihood and divergence from the prior), ``validation`` the error
    of the mean network on held-out rows: root mean squared for regression, cross-entropy for classification, negative
    log likelihood where the variance is learned. ``noise`` is the standard deviation of what a regression leaves.

    >>> import torch, geh_explain as geh
    >>> x = torch.rand(100, 2)
    >>> history = geh.bnn.fit(geh.bnn.HybridNet(2, hidden=(4,)), x, x.prod(1), epochs=3, progress=False)
    >>> history.task
    'regression'
    """

    task: str
    train: list[float] = field(default_factory=list)
    validation: list[float] = field(default_factory=list)
    best_epoch: int = -1
    noise: float | None = None
    interrupted: bool = False

    @property
    def best(self) -> float:
        """The validation error of the weights that were kept."""
        return self.validation[self.best_epoch]

    def table(self) -> pd.DataFrame:
        """Return losses as a DataFrame, one row per epoch."""
        import pandas as pd

        return pd.DataFrame({"train": self.train, "validation": self.validation}).rename_axis("epoch")

    def plot(self, ax: Any = None) -> Any:
        """Draw the validation error by epoch, and return the axes."""
        from geh_explain.plots import palette
        from geh_explain.plots.axes import axes_or_new

        ax = axes_or_new(ax, (6, 3.2))
        ax.plot(self.validation, color=palette.SURE, linewidth=1)
        ax.axvline(self.best_epoch, color=palette.MARK, linestyle="--", label=f"kept: {self.best_epoch}")
        ax.set_xlabel("epoch")
        ax.set_ylabel("validation error")
        ax.set_yscale("log" if min(self.validation) > 0 else "linear")
        ax.spines[["top", "right"]].set_visible(False)
        ax.legend(frameon=False)
        return ax

    def __repr__(self) -> str:
        kept = f"epoch {self.best_epoch} kept, validation error {self.best:.4g}" if self.validation else "nothing yet"
        return f"History({self.task}, {len(self.train)} epochs, {kept}{', interrupted' if self.interrupted else ''})"
