"""Does a posterior fit the data, draw by draw, and are its predictions as sure as they should be?"""

from __future__ import annotations

from dataclasses import dataclass
from itertools import islice
from typing import TYPE_CHECKING, Any

import numpy as np
import torch
from torch import Tensor
from tqdm.auto import tqdm

from geh_explain.data.points import Points
from geh_explain.errors import GEHTypeError, GEHValueError, warn
from geh_explain.model.cut import Cut
from geh_explain.model.outputs import Output
from geh_explain.posterior import Posterior
from geh_explain.posterior.protocols import steady

if TYPE_CHECKING:
    import pandas as pd
from geh_explain._types import Floats

#: Levels of the predictive intervals that are looked at.
LEVELS = (0.5, 0.8, 0.9, 0.95)
#: A draw is broken if it errs this many times as much as the network without draws.
_BROKEN = 2.0


@dataclass(frozen=True)
class Diagnosis:
    """How well the draws of a posterior fit.

    ``errors`` (K,) are those of the draws, ``error`` that of the mean of their predictions and ``point_error`` the
    network's own: root mean squared errors, or cross-entropies for classes. ``levels`` and ``covered`` say which share
    of the targets lies within the predictive intervals of each level, where the noise is taken from the
    residuals of the mean prediction (regression), or how often the most probable class is right among the predictions
    of each confidence (classification).

    >>> import torch, geh_explain as geh
    >>> net, x = torch.nn.Linear(2, 1), torch.randn(30, 2)
    >>> explainer = geh.GEHExplainer(net, posterior=geh.posterior.PointEstimate())
    >>> found = explainer.diagnose(x, net(x).detach(), progress=False)
    >>> found.task, found.broken
    ('regression', 0.0)
    """

    task: str
    errors: Floats
    error: float
    point_error: float
    levels: Floats
    covered: Floats

    @property
    def broken(self) -> float:
        """The share of draws that err at least twice as much as the network itself."""
        return float(np.mean(self.errors > _BROKEN * max(self.point_error, 1e-12)))

    def calibration(self) -> pd.DataFrame:
        """Return the shares beside what they should be."""
        import pandas as pd

        return pd.DataFrame({"nominal": self.levels, "observed": self.covered})

    def plot(self, *, ax: Any = None) -> Any:
        """Draw the shares against what they should be, and return the axes."""
        from geh_explain.plots.calibration import draw_calibration

        xlabel = "predicted" if self.task == "classification" else "level of the predictive interval"
        return draw_calibration(self.levels, self.covered, xlabel=xlabel, ax=ax)

    def __repr__(self) -> str:
        kind = "RMSE" if self.task == "regression" else "cross-entropy"
        pairs = ", ".join(f"{level:.0%}: {share:.0%}" for level, share in zip(self.levels, self.covered, strict=True))
        return (
            f"Diagnosis({self.task}, {len(self.errors)} draws: {kind} {self.errors.mean():.4g} "
            f"({self.errors.min():.4g} to {self.errors.max():.4g}), of their mean {self.error:.4g}, of the network "
            f"itself {self.point_error:.4g}; calibration {pairs})"
        )


def diagnose(
    cut: Cut,
    points: Points,
    posterior: Posterior,
    y: Any,
    output: Output,
    draws: int,
    batch_size: int | None,
    seed: int,
    progress: bool,
) -> Diagnosis:
    """Predict with each draw, and compare with the targets."""
    targets = _targets(y, len(points))
    with steady(posterior, cut.model, seed):
        point = _predictions(cut, points, targets, output, batch_size)
    found = []
    with tqdm(total=draws, desc="diagnosing", unit="draw", disable=not progress, leave=False) as bar:
        for draw in islice(posterior.draws(cut.model, draws, seed) or (), draws):
            with draw:
                cut.outputs(points.first[:1])  # the first forward of a draw has one row, see Posterior
                found.append(_predictions(cut, points, targets, output, batch_size))
            bar.update()
    if not found:
        raise GEHValueError(f"posterior={posterior!r} gave no draws.")
    every = torch.stack(found)
    task = "regression" if targets.is_floating_point() else "classification"
    calibrated = _intervals if task == "regression" else _confidence
    result = Diagnosis(
        task,
        np.array([_error(each, targets) for each in every]),
        _error(every.mean(dim=0), targets),
        _error(point, targets),
        *calibrated(every, targets),
    )
    if result.broken > 0.1:
        warn(
            f"posterior={posterior!r}: {result.broken:.0%} of its draws err more than twice as much as the network "
            f"itself ({np.median(result.errors):.3g} against {result.point_error:.3g}), so that its intervals are "
            "those of other functions; for a Laplace approximation use WeightSamples.from_laplace(la, linearised=True)."
        )
    return result


def _targets(y: Any, rows: int) -> Tensor:
    values = y.detach().cpu() if isinstance(y, Tensor) else torch.tensor(np.asarray(y))
    values = values.reshape(-1) if values.numel() == rows else values
    if values.shape != (rows,):
        raise GEHValueError(f"y has shape {tuple(values.shape)} for {rows} rows of inputs; give one target per row.")
    if values.is_floating_point():
        if not bool(torch.isfinite(values).all()):
            raise GEHValueError("y is NaN or infinite in some rows; leave them out.")
        return values.double()
    return values.long()


@torch.no_grad()  # here, as draws may switch gradients on
def _predictions(cut: Cut, points: Points, targets: Tensor, output: Output, batch_size: int | None) -> Tensor:
    """Return predicted numbers (n,), or probabilities of all classes (n, C)."""
    if targets.is_floating_point():
        return torch.cat([cut.outputs(rows).double().cpu() for rows in points.pieces(batch_size)])
    values = torch.cat([cut.all_outputs(rows).flatten(1).double().cpu() for rows in points.pieces(batch_size)])
    if output != "raw" and output != "probability":
        raise GEHTypeError(
            "diagnose: classes need output='raw' (logits) or 'probability'; give y as numbers otherwise."
        )
    if values.shape[1] == 1:
        right = values if output == "probability" else torch.sigmoid(values)
        values = torch.cat([1 - right, right], dim=1)
    elif output == "raw":
        values = torch.softmax(values, dim=1)
    if int(targets.min()) < 0 or int(targets.max()) >= values.shape[1]:
        raise GEHValueError(
            f"y has classes {int(targets.min())} to {int(targets.max())}; the model has {values.shape[1]}."
        )
    return values


def _error(predicted: Tensor, targets: Tensor) -> float:
    if targets.is_floating_point():
        return float((predicted - targets).square().mean().sqrt())
    return float(-predicted.gather(1, targets[:, None]).clamp_min(1e-12).log().mean())


def _intervals(every: Tensor, targets: Tensor) -> tuple[Floats, Floats]:
    """Return levels, and the share of targets within the predictive intervals of each."""
    from scipy.special import ndtri

    mean = every.mean(dim=0)
    spread = every.var(dim=0, correction=0)
    # What is left when the draws' own spread is taken off the residuals is noise.
    residuals = (targets - mean).square()
    noise = max(0.0, float((residuals - spread).mean()))
    ratio = (residuals / (spread + noise).clamp_min(1e-30)).sqrt().numpy()
    levels = np.array(LEVELS)
    return levels, np.array([float(np.mean(ratio <= ndtri((1 + level) / 2))) for level in levels])


def _confidence(every: Tensor, targets: Tensor) -> tuple[Floats, Floats]:
    """Return the mean confidence of predictions in fifths, and how often they are right."""
    best, chosen = every.mean(dim=0).max(dim=1)
    right = (chosen == targets).double().numpy()
    parts = np.array_split(np.argsort(best.numpy(), kind="stable"), min(5, len(right)))
    return np.array([float(best.numpy()[part].mean()) for part in parts]), np.array(
        [right[part].mean() for part in parts]
    )
