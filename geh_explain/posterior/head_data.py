"""What a Gaussian over the weights of a head needs from labelled data: sums over one pass."""

from __future__ import annotations

from abc import ABC, abstractmethod

import torch
from torch import Tensor

from geh_explain.errors import GEHTypeError, GEHValueError
from geh_explain.posterior.curvature import (
    Curvature,
    DiagonalCurvature,
    full_curvature,
    kronecker_curvature,
)
from geh_explain.posterior.draw_fit import KeptRows
from geh_explain.posterior.head import Head

#: Values of ``task`` and ``structure``.
TASKS = ("auto", "regression", "classification")
STRUCTURES = ("auto", "full", "kron", "diag")
#: Weights of a head up to which all covariances are kept: the eigenvectors take 32 MB, and a few seconds.
_MAX_FULL = 2048
#: Rounding of labels and outputs in single precision.
_ROUNDING = 1.2e-7
#: Features or outputs up to which their eigenvectors are computed.
_MAX_FACTOR = 5000


class HeadStatistics(ABC):
    """Sums over labelled rows.

    Attributes
    ----------
    task
        ``"regression"`` or ``"classification"``.
    n_rows
        Number of rows so far.
    gradient
        Gradient (C, F) of the negative log-likelihood at the trained weights; that of a regression is for noise 1.
    """

    task: str

    def __init__(self, head: Head, structure: str) -> None:
        self.head = head
        self.structure = structure
        self.n_rows = 0
        self.gradient = torch.zeros_like(head.weight)
        n_features = head.weight.shape[1]
        #: Sum of h h^T (F, F), or of the squares h^2 (F,) where only the diagonal is kept.
        self.features = torch.zeros(n_features if structure == "diag" else (n_features, n_features), dtype=torch.double)

    @property
    def n_outputs(self) -> int:
        """Number of outputs C."""
        return len(self.head.weight)

    def add(self, features: Tensor, outputs: Tensor, labels: Tensor) -> None:
        """Add rows: features (n, F), the model's outputs (n, C), and the labels of the rows."""
        slopes = self._slopes(features, outputs, self._check_labels(labels, len(outputs)))
        self.n_rows += len(features)
        self.gradient += slopes.T @ features

    @abstractmethod
    def _check_labels(self, labels: Tensor, n_rows: int) -> Tensor:
        """Return the labels as doubles (n, C) or class indices (n,)."""

    @abstractmethod
    def _slopes(self, features: Tensor, outputs: Tensor, labels: Tensor) -> Tensor:
        """Add to the sums; return the derivative (n, C) of the negative log-likelihood of each row in z."""

    @abstractmethod
    def check_fit(self) -> None:
        """Raise if the outputs do not predict the labels."""

    def _products(self, features: Tensor) -> Tensor:
        return features.square().sum(0) if self.structure == "diag" else features.T @ features


class RegressionStatistics(HeadStatistics):
    """Sums of a regression with Gaussian noise of variance s_c^2 for output c: L_n = diag(slope_c^2 / s_c^2)."""

    task = "regression"

    def __init__(self, head: Head, structure: str) -> None:
        super().__init__(head, structure)
        zeros = torch.zeros(self.n_outputs, dtype=torch.double)
        self.residuals, self._sum, self._squares = zeros, zeros.clone(), zeros.clone()
        #: Whether all labels are 0 or 1, and whether all rows of several labels sum to 1.
        self._binary, self._one_hot = True, True

    def _check_labels(self, labels: Tensor, n_rows: int) -> Tensor:
        """Return the labels as the loss takes them; raises if they do not fit the outputs."""
        values = labels.reshape(n_rows, -1) if labels.numel() == n_rows * self.n_outputs else labels
        if values.shape != (n_rows, self.n_outputs):
            raise GEHValueError(
                f"LastLayerLaplace: labels have shape {tuple(labels.shape)} for {n_rows} rows and {self.n_outputs} "
                "outputs of a regression; give one number per row and output. Classes are whole numbers."
            )
        values = values.double()
        if not bool(torch.isfinite(values).all()):
            raise GEHValueError("LastLayerLaplace: labels are NaN or infinite in some rows; leave these out.")
        self._binary &= bool(((values == 0) | (values == 1)).all())
        self._one_hot &= bool(((values >= 0).all(1) & ((values.sum(1) - 1).abs() < 1e-6)).all())
        return values

    def _slopes(self, features: Tensor, outputs: Tensor, labels: Tensor) -> Tensor:
        """Add a batch to the sums, and return the slopes (n, C) of its loss in the outputs of the head."""
        errors = outputs - labels
        self.residuals += errors.square().sum(0)
        self._sum += labels.sum(0)
        self._squares += labels.square().sum(0)
        self.features += self._products(features)
        return errors * self.head.slope

    def check_task(self) -> None:
        """Raise if the labels look like classes."""
        if self._binary and self.n_outputs == 1:
            raise GEHValueError(
                "LastLayerLaplace: all labels are 0.0 or 1.0; pass task='classification' if the network was trained "
                "by cross-entropy (its output is a logit), else task='regression'."
            )
        if self._one_hot and self.n_outputs > 1:
            raise GEHValueError(
                "LastLayerLaplace: labels are probabilities or one-hot rows; pass the index of the class of each row, "
                "labels.argmax(1), or task='regression' for a network that was trained by squared errors."
            )

    def check_fit(self) -> None:
        """Raise if the outputs do not predict the labels."""
        variation = self._squares - self._sum.square() / self.n_rows
        if bool((self.residuals >= variation).all()):
            share = 1 - float(self.residuals.sum() / variation.sum().clamp_min(1e-300))
            raise GEHValueError(
                f"LastLayerLaplace: the outputs do not predict the labels (R^2 = {share:.2f}), no better than a "
                "constant. Pass the labels of these rows in their order, on the scale of the outputs, and a trained "
                "network."
            )

    def noise_is_measurable(self) -> bool:
        """Return whether the residuals are more than rounding errors."""
        variation = (self._squares - self._sum.square() / self.n_rows).clamp_min(0)
        return bool((self.residuals > 1e-10 * variation + _ROUNDING**2 * self._squares).all())

    def curvature(self, noise: Tensor) -> Curvature:
        """Return the curvature for noise variances (C,); outputs are independent, so that it is not approximated."""
        weights = self.head.slope.square() / noise
        if self.structure == "diag":
            return DiagonalCurvature(torch.outer(weights, self.features))
        return kronecker_curvature(weights, self.features, "full")


class ClassificationStatistics(HeadStatistics):
    """Sums of a classification with probabilities p: L_n = diag(p) - p p^T, or p (1 - p) for a single logit."""

    task = "classification"

    def __init__(self, head: Head, structure: str) -> None:
        super().__init__(head, structure)
        n_outputs, n_features = head.weight.shape
        n_classes = max(2, n_outputs)
        self._counts = torch.zeros(n_classes, dtype=torch.double)
        self._loss, self._n_right = 0.0, 0
        shapes = {
            "full": (n_outputs * n_features,) * 2,
            "kron": (n_outputs, n_outputs),
            "diag": tuple(head.weight.shape),
        }
        self._hessian = torch.zeros(shapes[structure], dtype=torch.double)
        #: Some of the rows, on which draws are compared with the network.
        self.kept = KeptRows()

    def _check_labels(self, labels: Tensor, n_rows: int) -> Tensor:
        """Return the labels as the loss takes them; raises if they do not fit the outputs."""
        values = labels.reshape(-1) if labels.numel() == n_rows else labels
        if values.shape != (n_rows,):
            raise GEHValueError(
                f"LastLayerLaplace: labels have shape {tuple(labels.shape)} for {n_rows} rows of a classification; "
                "give one class index per row."
            )
        indices = values.long()
        n_classes = len(self._counts)
        if not bool((indices == values).all()) or int(indices.min()) < 0 or int(indices.max()) >= n_classes:
            shown = f"{float(values.min()):g} to {float(values.max()):g}"
            raise GEHValueError(
                f"LastLayerLaplace: labels are {shown}, but the head {self.head.name!r} has {n_classes} classes, 0 to "
                f"{n_classes - 1}. For a regression pass labels as floating-point numbers."
            )
        return indices

    def _slopes(self, features: Tensor, outputs: Tensor, labels: Tensor) -> Tensor:
        """Add a batch to the sums, and return the slopes (n, C) of its loss in the outputs of the head."""
        logits = features @ self.head.weight.T if self.head.link != "identity" else outputs
        self.kept.add(features, logits, labels)
        both = torch.cat([torch.zeros_like(logits), logits], dim=1) if self.n_outputs == 1 else logits
        log_p = both.log_softmax(1)
        self._counts += torch.bincount(labels, minlength=len(self._counts))
        self._loss -= float(log_p.gather(1, labels[:, None]).sum())
        self._n_right += int((log_p.argmax(1) == labels).sum())
        p = log_p.exp()
        errors = p - torch.nn.functional.one_hot(labels, len(self._counts))
        # A single logit is that of class 1.
        self._add_hessian(features, p[:, -self.n_outputs :])
        return errors[:, -self.n_outputs :] * self.head.slope

    def _add_hessian(self, features: Tensor, p: Tensor) -> None:
        """Add the rows' curvature; ``p`` (n, C) are probabilities, those of class 1 for a single logit."""
        scaled = p * self.head.slope
        if self.structure == "diag":
            self._hessian += (scaled * self.head.slope * (1 - p)).T @ features.square()
            return
        if self.structure == "kron":
            self.features += self._products(features)
            self._hessian += torch.diag((scaled * self.head.slope).sum(0)) - scaled.T @ scaled
            return
        products = (scaled[:, :, None] * features[:, None]).flatten(1)
        self._hessian -= products.T @ products
        n_features = features.shape[1]
        for output in range(self.n_outputs):
            block = slice(output * n_features, (output + 1) * n_features)
            self._hessian[block, block] += features.T @ (features * (scaled * self.head.slope)[:, output, None])

    def check_fit(self) -> None:
        """Raise if the outputs do not predict the labels."""
        shares = self._counts / self.n_rows
        constant_loss = -float((shares * shares.clamp_min(1e-300).log()).sum())
        loss, accuracy = self._loss / self.n_rows, self._n_right / self.n_rows
        if int((self._counts > 0).sum()) < 2:
            raise GEHValueError("LastLayerLaplace: all labels are of one class; pass rows of several classes.")
        if loss >= constant_loss and accuracy <= float(shares.max()):
            raise GEHValueError(
                f"LastLayerLaplace: the outputs do not predict the labels: {accuracy:.0%} are right, cross-entropy "
                f"{loss:.3g}, and {constant_loss:.3g} without the network. Pass the labels of these rows in their "
                "order, numbered as the outputs, and a trained network."
            )

    def curvature(self) -> Curvature:
        """Return the curvature; with ``"kron"`` the mean of L_n times the sum of h h^T."""
        if self.structure == "diag":
            return DiagonalCurvature(self._hessian)
        if self.structure == "kron":
            return kronecker_curvature(self._hessian / self.n_rows, self.features)
        return full_curvature(self._hessian, self.n_outputs)


def choose_task(task: str, labels: Tensor) -> str:
    """Return the task: regression for floating-point labels, classification for whole numbers and booleans."""
    if labels.is_complex():
        raise GEHTypeError(f"LastLayerLaplace: labels have dtype {labels.dtype}; give numbers or class indices.")
    if task != "auto":
        return task
    return "regression" if labels.is_floating_point() else "classification"


def choose_structure(structure: str, task: str, head: Head) -> str:
    """Return the most complete structure of the covariance that fits; a given one is kept if it is possible."""
    n_outputs, n_features = head.weight.shape
    # Outputs of a regression are independent given the features: the full covariance has one block per output.
    n_full = n_features if task == "regression" or n_outputs == 1 else n_features * n_outputs
    if structure == "kron" and (task == "regression" or n_outputs == 1):
        structure = "full"
    if structure != "auto":
        return structure
    if n_full <= _MAX_FULL or (n_full == n_features and n_features <= _MAX_FACTOR):
        return "full"
    return "kron" if max(n_outputs, n_features) <= _MAX_FACTOR else "diag"
