"""Diagnosis of a posterior: how well each draw fits known targets, and whether predictions are calibrated."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
import torch
from torch import Tensor
from tqdm.auto import tqdm

from geh_explain._types import Floats
from geh_explain.data.points import Points
from geh_explain.errors import GEHTypeError, GEHValueError, warn
from geh_explain.model.cut import Cut
from geh_explain.model.estimators import EstimatorModel, ReturnedProbability
from geh_explain.plots.calibration import draw_calibration
from geh_explain.posterior import Posterior
from geh_explain.posterior.protocols import enter_draws, fixed
from geh_explain.run.options import AnalysisOptions

if TYPE_CHECKING:
    import pandas as pd

#: Levels of the predictive intervals whose coverage is measured.
LEVELS = (0.5, 0.8, 0.9, 0.95)
#: A draw counts as broken if its error exceeds that of the network without draws by this factor.
_BROKEN = 2.0


@dataclass(frozen=True)
class Diagnosis:
    """Errors and calibration of the draws of a posterior.

    Errors are root mean squared errors for regression, and cross-entropies for classification.

    Attributes
    ----------
    task
        ``"regression"`` or ``"classification"``.
    errors
        Error of each draw (K,).
    error
        Error of the mean prediction over draws.
    point_error
        Error of the network without draws.
    levels, covered
        Regression: levels of predictive intervals, and the share of targets within each. The variance of an interval
        is that of the draws plus that of the noise, which is estimated from the residuals of the mean prediction.
        Classification: mean confidence of the predictions in five groups of increasing confidence, and the share of
        correct ones in each. Calibrated predictions have ``covered`` close to ``levels``.

    Examples
    --------
    >>> import torch, geh_explain as geh
    >>> net, x = torch.nn.Linear(2, 1), torch.randn(30, 2)
    >>> explainer = geh.GEHExplainer(net, posterior=geh.posterior.PointEstimate())
    >>> diagnosis = explainer.diagnose(x, y=net(x).detach(), progress=False)
    >>> diagnosis.task, diagnosis.broken
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
        """Share of draws whose error is more than twice that of the network without draws."""
        return float(np.mean(self.errors > _BROKEN * max(self.point_error, 1e-12)))

    def calibration(self) -> pd.DataFrame:
        """Return a table with the columns level (what the share should be) and covered (what it is)."""
        import pandas as pd

        return pd.DataFrame({"level": self.levels, "covered": self.covered})

    def plot(self, *, ax: Any = None) -> Any:
        """Draw the shares against what they should be, and return the axes."""
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


def diagnose(cut: Cut, points: Points, posterior: Posterior, y: Any, options: AnalysisOptions) -> Diagnosis:
    """Predict with each draw, and compare with the targets ``y``, one per row.

    Floating-point targets mean regression, integers classification. Warns if more than a tenth of the draws is broken.
    """
    y = cut.model.class_indices(y) if isinstance(cut.model, EstimatorModel) else y
    targets = _targets(y, len(points))
    with fixed(posterior, cut.model, options.seed):
        point = _predictions(cut, points, targets, options.batch_size)
    predictions = []
    with (
        tqdm(total=options.draws, desc="diagnosing", unit="draw", disable=not options.progress, leave=False) as bar,
        enter_draws(posterior, cut.model, options.draws, options.seed, lambda: cut.outputs(points.first[:1])) as draws,
    ):
        for _ in draws:
            predictions.append(_predictions(cut, points, targets, options.batch_size))
            bar.update()
    if not predictions:
        raise GEHValueError(f"posterior={posterior!r} gave no draws.")
    stacked = torch.stack(predictions)
    task = "regression" if targets.is_floating_point() else "classification"
    calibrated = _intervals if task == "regression" else _confidence
    result = Diagnosis(
        task,
        np.array([_error(prediction, targets) for prediction in stacked]),
        _error(stacked.mean(dim=0), targets),
        _error(point, targets),
        *calibrated(stacked, targets),
    )
    if result.broken > 0.1:
        warn(
            f"posterior={posterior!r}: {result.broken:.0%} of its draws err more than twice as much as the network "
            f"itself ({np.median(result.errors):.3g} against {result.point_error:.3g}), so that its intervals are "
            "those of other functions; for a Laplace approximation use Laplace(la, linearised=True)."
        )
    return result


def _targets(y: Any, rows: int) -> Tensor:
    """Return the targets (n,) as doubles or class indices."""
    values = y.detach().cpu() if isinstance(y, Tensor) else np.asarray(y)
    if isinstance(values, np.ndarray):
        if values.dtype.kind not in "fiub":
            raise GEHTypeError(f"y has dtype {values.dtype}; give numbers, or the indices of classes.")
        values = torch.tensor(values)
    values = values.reshape(-1) if values.numel() == rows else values
    if values.shape != (rows,):
        raise GEHValueError(f"y has shape {tuple(values.shape)} for {rows} rows of inputs; give one target per row.")
    if values.is_floating_point():
        if not bool(torch.isfinite(values).all()):
            raise GEHValueError("y is NaN or infinite in some rows; leave them out.")
        return values.double()
    return values.long()


@torch.no_grad()  # here, as draws may switch gradients on
def _predictions(cut: Cut, points: Points, targets: Tensor, batch_size: int | None) -> Tensor:
    """Return predicted numbers (n,), or probabilities of all classes (n, C)."""
    if targets.is_floating_point():
        return torch.cat([cut.outputs(rows).double().cpu() for rows in points.split(batch_size)])
    output = "probability" if isinstance(cut.output, ReturnedProbability) else cut.output
    values = torch.cat([cut.all_outputs(rows).flatten(1).double().cpu() for rows in points.split(batch_size)])
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
    """Return the root mean squared error of numbers, or the cross-entropy of class probabilities."""
    if targets.is_floating_point():
        return float((predicted - targets).square().mean().sqrt())
    return float(-predicted.gather(1, targets[:, None]).clamp_min(1e-12).log().mean())


def _intervals(predictions: Tensor, targets: Tensor) -> tuple[Floats, Floats]:
    """Return levels, and the share of targets within the predictive intervals of each."""
    from scipy.special import ndtri

    mean = predictions.mean(dim=0)
    spread = predictions.var(dim=0, correction=0)
    # Squared residuals are the variance of the draws plus that of the noise.
    residuals = (targets - mean).square()
    noise = max(0.0, float((residuals - spread).mean()))
    ratio = (residuals / (spread + noise).clamp_min(1e-30)).sqrt().numpy()
    levels = np.array(LEVELS)
    return levels, np.array([float(np.mean(ratio <= ndtri((1 + level) / 2))) for level in levels])


def _confidence(predictions: Tensor, targets: Tensor) -> tuple[Floats, Floats]:
    """Return the mean confidence of predictions in fifths, and how often they are right."""
    best, chosen = predictions.mean(dim=0).max(dim=1)
    right = (chosen == targets).double().numpy()
    parts = np.array_split(np.argsort(best.numpy(), kind="stable"), min(5, len(right)))
    return np.array([float(best.numpy()[part].mean()) for part in parts]), np.array(
        [right[part].mean() for part in parts]
    )
