"""The training loop: Adam on likelihood plus divergence from the prior, with early stopping."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, nn
from tqdm.auto import tqdm

from geh_explain._types import Floats
from geh_explain.bnn.concrete import NodeDropout
from geh_explain.bnn.data import Table
from geh_explain.bnn.history import History
from geh_explain.bnn.layers import BayesianLayer
from geh_explain.bnn.likelihood import cross_entropy, heteroscedastic_nll, homoscedastic_nll
from geh_explain.bnn.mean_field import MeanField
from geh_explain.errors import GEHRuntimeError, warn

#: Weight of the divergence from the prior in the first epoch; it grows linearly to 1.
_FIRST_PRIOR_WEIGHT = 0.01
#: Epochs over which it grows, or two thirds of all epochs if that is less.
_ANNEALING_EPOCHS = 10
#: Learning rate of dropout rates and weights' standard deviations, relative to that of the weights. At the same rate
#: they hardly move from their initial values.
_SPREAD_LR_FACTOR = 3.0
#: Decay of the running mean of a regression's noise variance, per batch.
_NOISE_DECAY = 0.98
#: Rows per forward pass on held-out data.
_VALIDATION_BATCH = 4096


@dataclass(frozen=True)
class TrainingOptions:
    """Checked arguments of :func:`geh_explain.bnn.fit`, where they are described."""

    epochs: int
    patience: int
    batch_size: int
    lr: float
    temperature: float
    heteroscedastic: bool
    seed: int
    progress: bool


class Trainer:
    """One training run of one network.

    The objective of a batch B of the n training rows is, with annealing weight a and temperature T ::

        1/|B| sum_{i in B} -log p(y_i | f(x_i)) + a T / n * sum_layers kl(layer)

    Parameters
    ----------
    model
        The network; its weights are changed in place.
    train, held_out
        Rows to train on, and rows that decide which epoch's weights are kept.
    options
        Settings of the run.
    """

    def __init__(self, model: nn.Module, train: Table, held_out: Table, options: TrainingOptions) -> None:
        self._model = model
        self._train = train
        self._held_out = held_out
        self._options = options
        # Protocols compare names only, and a module may have another attribute called kl.
        self._layers = [
            module for module in model.modules() if isinstance(module, BayesianLayer) and callable(module.kl)
        ]
        self._optimiser = _adam(model, options.lr)
        #: Running estimate of the noise variance (k,) of a regression.
        self._noise = train.y.var(dim=0) if train.task == "regression" else torch.ones(())
        self._best_state: dict[str, Tensor] = {}

    def run(self) -> History:
        """Train, leave the network in eval mode with the best weights, and return the losses.

        An interruption by the keyboard ends training as early stopping does, with a warning.
        """
        options = self._options
        train_losses: list[float] = []
        validation_errors: list[float] = []
        best_epoch = -1
        interrupted = False
        generator = torch.Generator().manual_seed(options.seed)
        schedule = torch.optim.lr_scheduler.CosineAnnealingLR(self._optimiser, options.epochs)
        annealing = min(_ANNEALING_EPOCHS, 2 * options.epochs // 3) if self._layers else 0
        bar = tqdm(range(options.epochs), desc="fitting", unit="epoch", disable=not options.progress, leave=False)
        try:
            for epoch in bar:
                loss = self._train_epoch(epoch, prior_weight(epoch, annealing), generator)
                error = self._validation_error()
                train_losses.append(loss)
                validation_errors.append(error)
                schedule.step()
                # Before the prior has its full weight, draws of the network vary too little to compare epochs.
                if epoch <= annealing or error < validation_errors[best_epoch]:
                    best_epoch = epoch
                    self._best_state = {name: value.clone() for name, value in self._model.state_dict().items()}
                bar.set_postfix(train=f"{loss:.4g}", validation=f"{error:.4g}", refresh=False)
                if epoch - best_epoch >= options.patience:
                    break
        except KeyboardInterrupt:
            interrupted = True
            outcome = f"the weights of epoch {best_epoch} are kept" if self._best_state else "no epoch was finished"
            warn(f"fit was interrupted in epoch {len(validation_errors)}; {outcome}.")
        finally:
            bar.close()
            if self._best_state:
                self._model.load_state_dict(self._best_state)
            self._model.eval()
        is_measured = bool(validation_errors) and self._train.task == "regression"
        noise = self._root_mean_square() if is_measured else None
        return History(self._train.task, train_losses, validation_errors, best_epoch, noise, interrupted)

    def _train_epoch(self, epoch: int, weight: float, generator: torch.Generator) -> float:
        """Train on every row once, with this weight of the prior, and return the mean objective."""
        self._model.train()
        total = torch.zeros(())
        n_rows = len(self._train)
        for batch in torch.split(torch.randperm(n_rows, generator=generator), self._options.batch_size):
            loss = self._negative_log_likelihood(self._model(self._train.x[batch]), self._train.y[batch])
            if self._layers:
                divergence = torch.stack([layer.kl() for layer in self._layers]).sum()
                loss = loss + self._options.temperature * weight / n_rows * divergence
            self._optimiser.zero_grad()
            loss.backward()  # type: ignore[no-untyped-call]
            self._optimiser.step()
            total += loss.detach().cpu() * len(batch)
        mean = float(total) / n_rows
        if not math.isfinite(mean):
            raise GEHRuntimeError(
                f"the loss became {mean} in epoch {epoch}: training diverged at lr={self._options.lr:g}. Use a smaller "
                "lr, and check the scale of X and y (HybridNet scales them itself)."
            )
        return mean

    def _negative_log_likelihood(self, out: Tensor, y: Tensor) -> Tensor:
        """Return the loss of a batch in training; updates the noise estimate of a regression."""
        if self._train.task == "classification":
            return cross_entropy(out, y)
        if self._options.heteroscedastic:
            return heteroscedastic_nll(out, y)
        squared_errors = (out.reshape(y.shape) - y).square()
        self._noise = _NOISE_DECAY * self._noise + (1 - _NOISE_DECAY) * squared_errors.detach().mean(dim=0)
        return homoscedastic_nll(squared_errors, self._noise)

    @torch.no_grad()
    def _validation_error(self) -> float:
        """Return the error of the network in eval mode on held-out rows, as ``History.validation`` describes it."""
        self._model.eval()
        if self._train.task == "classification":
            return float(cross_entropy(self._held_out_outputs(), self._held_out.y))
        if self._options.heteroscedastic:
            return float(heteroscedastic_nll(self._held_out_outputs(), self._held_out.y))
        return self._root_mean_square()

    @torch.no_grad()
    def _root_mean_square(self) -> float:
        """Return the root mean squared residual of a regression on held-out rows."""
        y = self._held_out.y
        residuals = self._held_out_outputs()[:, : y.shape[1]] - y
        return math.sqrt(float(residuals.square().mean()))

    @torch.no_grad()
    def held_out_means(self) -> Floats:
        """Return the outputs (n, k) on held-out rows: means of targets, or logits of classes."""
        outputs = self._held_out_outputs()
        if self._train.task == "regression":
            outputs = outputs[:, : self._held_out.y.shape[1]]
        return outputs.double().cpu().numpy()

    def _held_out_outputs(self) -> Tensor:
        """Return the outputs (n, n_outputs) on held-out rows."""
        out = torch.cat([self._model(rows) for rows in torch.split(self._held_out.x, _VALIDATION_BATCH)])
        return out.reshape(len(out), -1)


def prior_weight(epoch: int, annealing: int) -> float:
    """Return the weight of the divergence from the prior: linear from 0.01 to 1 over the first epochs.

    >>> [round(prior_weight(epoch, annealing=2), 3) for epoch in range(4)]
    [0.01, 0.505, 1.0, 1.0]
    """
    if epoch >= annealing:
        return 1.0
    return _FIRST_PRIOR_WEIGHT + (1 - _FIRST_PRIOR_WEIGHT) * epoch / annealing


def _adam(model: nn.Module, lr: float) -> torch.optim.Adam:
    """Return Adam over all parameters, with a larger learning rate for those that describe uncertainty."""
    spreads = _spread_parameters(model)
    groups: list[dict[str, Any]] = [{"params": [p for p in model.parameters() if p not in spreads]}]
    if spreads:
        groups.append({"params": list(spreads), "lr": lr * _SPREAD_LR_FACTOR})
    return torch.optim.Adam(groups, lr=lr, fused=True)


def _spread_parameters(model: nn.Module) -> dict[nn.Parameter, None]:
    """Return logits of dropout rates and log standard deviations of weights, as an ordered set."""
    # A dict keeps the order of the modules, on which the order of floating-point operations depends.
    parameters: dict[nn.Parameter, None] = {}
    for module in model.modules():
        if isinstance(module, NodeDropout):
            parameters[module.logits] = None
        elif isinstance(module, MeanField):
            parameters.update((p, None) for p in (module.log_std, module.log_std_bias) if p is not None)
    return parameters
