"""Fitting a Bayesian network: likelihood plus divergence from the prior, with early stopping."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn
from tqdm.auto import tqdm

from geh_explain._validation import check_int
from geh_explain.bnn.concrete import NodeDropout
from geh_explain.bnn.data import Table, check_columns, read
from geh_explain.bnn.history import History
from geh_explain.bnn.hybrid import HybridNet
from geh_explain.bnn.layers import Bayesian
from geh_explain.bnn.mean_field import MeanField
from geh_explain.errors import GEHRuntimeError, GEHTypeError, GEHValueError, warn

#: The divergence from the prior is let in over the first epochs, from this share on.
_FIRST_SHARE, _ANNEALED = 0.01, 10
#: Dropout rates and weights' spreads learn this many times faster than weights: at the same pace they hardly move from
#: where they start.
_SPREADS_FASTER = 3.0
#: How much of the noise's variance is remembered from batch to batch.
_MEMORY = 0.98
_FEWEST_ROWS = 10
#: An epoch has about so many batches, of a size within these bounds.
_BATCHES, _SMALLEST_BATCH, _LARGEST_BATCH = 40, 16, 512


def fit(
    model: nn.Module,
    X: Any,
    y: Any,
    *,
    task: str = "auto",
    epochs: int = 80,
    batch_size: int | None = None,
    lr: float = 3e-3,
    validation: float | tuple[Any, Any] = 0.2,
    patience: int = 20,
    temperature: float = 1.0,
    heteroscedastic: bool = False,
    seed: int = 0,
    progress: bool = True,
) -> History:
    """Train a network with Adam, and leave it in eval mode with the weights that did best on held-out rows.

    The objective is the mean negative log likelihood plus, for Bayesian layers (:class:`ConcreteDropout`,
    :class:`MeanField`), their divergence from the prior, let in over the first ten epochs (or two thirds of them, if
    that is less) and times ``temperature``: below 1 the network follows the data more closely, and draws differ less.
    The learning rate falls to 0 by a cosine. A regression's noise is estimated along the way; with ``heteroscedastic``
    the network puts out its log variance too, after the means. Integer targets are classes where the network has an
    output for each, or one output and there are two.

    ``validation`` is the share of rows that is held out, or a pair (X, y). An epoch can be the best one once the prior
    is fully let in: weights from before are too sure. Training ends after ``patience`` epochs without a new best.
    Interrupted by the keyboard, it keeps the best weights so far.

    >>> import torch, geh_explain as geh
    >>> x = torch.rand(500, 2)
    >>> net = geh.bnn.HybridNet(2, hidden=(20,))
    >>> history = geh.bnn.fit(net, x, 3 * x[:, 0] + x[:, 1], epochs=20, progress=False)
    >>> history.best < 0.3
    True
    """
    outputs = _outputs(model, X)
    like = next((p for p in model.parameters() if p.is_floating_point()), None)
    if like is None:
        raise GEHTypeError("model has no parameters to fit.")
    table = read(X, y, task, outputs, heteroscedastic, like)
    train, held_out = _split(
        table, validation, seed, lambda a, b: read(a, b, table.task, outputs, heteroscedastic, like)
    )
    if isinstance(model, HybridNet):
        check_columns(train)
        _scale(model, train, heteroscedastic)
    size = max(_SMALLEST_BATCH, min(_LARGEST_BATCH, len(train) // _BATCHES))
    size = size if batch_size is None else check_int("batch_size", batch_size, 1)
    trainer = _Trainer(
        model, train, held_out, heteroscedastic, _positive("lr", lr), size, _positive("temperature", temperature)
    )
    with _seeded(seed):
        return trainer.run(check_int("epochs", epochs, 1), check_int("patience", patience, 1), seed, progress)


class _Trainer:
    """One fit: the model, its data, and the best weights so far."""

    def __init__(
        self,
        model: nn.Module,
        train: Table,
        held_out: Table,
        heteroscedastic: bool,
        lr: float,
        batch_size: int,
        temperature: float,
    ) -> None:
        self.model, self.train, self.held_out = model, train, held_out
        self.heteroscedastic, self.batch_size, self.temperature = heteroscedastic, batch_size, temperature
        self.layers = [module for module in model.modules() if isinstance(module, Bayesian) and callable(module.kl)]
        spreads = _spreads(model)
        groups: list[dict[str, Any]] = [{"params": [p for p in model.parameters() if p not in spreads]}]
        if spreads:
            groups.append({"params": list(spreads), "lr": lr * _SPREADS_FASTER})
        self.optimiser = torch.optim.Adam(groups, lr=lr, fused=True)
        self.lr = lr
        self.noise = train.y.var(dim=0) if train.task == "regression" else torch.ones(())
        self.best: dict[str, Tensor] = {}

    def run(self, epochs: int, patience: int, seed: int, progress: bool) -> History:
        history = History(self.train.task)
        generator = torch.Generator().manual_seed(seed)
        schedule = torch.optim.lr_scheduler.CosineAnnealingLR(self.optimiser, epochs)
        annealed = min(_ANNEALED, 2 * epochs // 3) if self.layers else 0
        bar = tqdm(range(epochs), desc="fitting", unit="epoch", disable=not progress, leave=False)
        try:
            for epoch in bar:
                share = _FIRST_SHARE + (1 - _FIRST_SHARE) * epoch / annealed if epoch < annealed else 1.0
                history.train.append(self._epoch(share, generator, epoch))
                history.validation.append(self._error())
                schedule.step()
                if epoch <= annealed or history.validation[-1] < history.best:
                    history.best_epoch = epoch
                    self.best = {name: value.clone() for name, value in self.model.state_dict().items()}
                bar.set_postfix(
                    train=f"{history.train[-1]:.4g}", validation=f"{history.validation[-1]:.4g}", refresh=False
                )
                if epoch - history.best_epoch >= patience:
                    break
        except KeyboardInterrupt:
            history.interrupted = True
            kept = f"the weights of epoch {history.best_epoch} are kept" if self.best else "nothing was learned"
            warn(f"fit was interrupted in epoch {len(history.validation)}; {kept}.")
        finally:
            bar.close()
            if self.best:
                self.model.load_state_dict(self.best)
            self.model.eval()
        if history.validation and self.train.task == "regression":
            history.noise = math.sqrt(float(self._residuals().square().mean()))
        return history

    def _epoch(self, share: float, generator: torch.Generator, epoch: int) -> float:
        self.model.train()
        total = torch.zeros(())
        batches = torch.split(torch.randperm(len(self.train), generator=generator), self.batch_size)
        for batch in batches:
            loss = self._likelihood(self.model(self.train.x[batch]), self.train.y[batch])
            if self.layers:
                divergence = torch.stack([layer.kl() for layer in self.layers]).sum()
                loss = loss + self.temperature * share / len(self.train) * divergence
            self.optimiser.zero_grad()
            loss.backward()  # type: ignore[no-untyped-call]
            self.optimiser.step()
            total += loss.detach().cpu() * len(batch)
        mean = float(total) / len(self.train)
        if not math.isfinite(mean):
            raise GEHRuntimeError(
                f"the loss became {mean} in epoch {epoch}: training diverged at lr={self.lr:g}. Try a smaller one, and "
                "look at the scale of X and y (HybridNet scales them itself)."
            )
        return mean

    def _likelihood(self, out: Tensor, y: Tensor) -> Tensor:
        """Return the mean negative log likelihood, up to a constant."""
        if self.train.task == "classification":
            return _cross_entropy(out, y)
        if self.heteroscedastic:
            return _gaussian(out, y)
        errors = (out.reshape(y.shape) - y).square()
        self.noise = _MEMORY * self.noise + (1 - _MEMORY) * errors.detach().mean(dim=0)
        return (errors / (2 * self.noise)).sum(dim=1).mean() + self.noise.log().sum() / 2

    @torch.no_grad()
    def _error(self) -> float:
        """Return the error of the mean network on held-out rows."""
        self.model.eval()
        if self.train.task == "regression" and not self.heteroscedastic:
            return math.sqrt(float(self._residuals().square().mean()))
        out, y = self._outputs(), self.held_out.y
        return float(_gaussian(out, y) if self.heteroscedastic else _cross_entropy(out, y))

    @torch.no_grad()
    def _residuals(self) -> Tensor:
        out, y = self._outputs(), self.held_out.y
        return out[:, : y.shape[1]] - y

    def _outputs(self) -> Tensor:
        out = torch.cat([self.model(rows) for rows in torch.split(self.held_out.x, 4096)])
        return out.reshape(len(out), -1)


def _spreads(model: nn.Module) -> dict[nn.Parameter, None]:
    """Return the parameters that say how uncertain others are: dropout rates and the spreads of weights."""
    found: dict[nn.Parameter, None] = {}
    for module in model.modules():
        if isinstance(module, NodeDropout):
            found[module.logits] = None
        elif isinstance(module, MeanField):
            found.update((p, None) for p in (module.log_std, module.log_std_bias) if p is not None)
    return found


def _cross_entropy(out: Tensor, y: Tensor) -> Tensor:
    out = out.reshape(len(y), -1)
    if out.shape[1] == 1:
        return F.binary_cross_entropy_with_logits(out[:, 0], y.to(out))
    return F.cross_entropy(out, y)


def _gaussian(out: Tensor, y: Tensor) -> Tensor:
    """Return the mean negative log likelihood of means and log variances, up to a constant."""
    mean, log_variance = torch.split(out.reshape(len(y), -1), y.shape[1], dim=1)
    return ((mean - y).square() * (-log_variance).exp() + log_variance).sum(dim=1).mean() / 2


def _outputs(model: nn.Module, inputs: Any) -> int:
    """Return how many numbers the network puts out per row."""
    if not isinstance(model, nn.Module):
        raise GEHTypeError(f"model={model!r} is no torch.nn.Module.")
    if isinstance(model, HybridNet):
        return model.outputs
    from geh_explain.data.reader import Reader
    from geh_explain.model.borrow import borrow, device_and_dtype

    device, dtype = device_and_dtype(model)
    rows = Reader(device=device, dtype=dtype).read(inputs).first[:1]
    with borrow(model), torch.no_grad():
        out = model(*rows.inputs)
    if not isinstance(out, Tensor):
        raise GEHTypeError(f"model puts out a {type(out).__name__}; fit takes networks that put out one tensor.")
    return max(1, out[0].numel())


def _split(
    table: Table, validation: float | tuple[Any, Any], seed: int, read_more: Callable[[Any, Any], Table]
) -> tuple[Table, Table]:
    if isinstance(validation, tuple):
        if len(validation) != 2:
            raise GEHTypeError("validation must be a share between 0 and 1, or a pair (X, y).")
        return table, read_more(*validation)
    if not 0 < validation < 1:
        raise GEHValueError(f"validation={validation!r} must be a share between 0 and 1, or a pair (X, y).")
    held_out = max(1, round(validation * len(table)))
    if len(table) < _FEWEST_ROWS or held_out >= len(table):
        raise GEHValueError(
            f"X has {len(table)} rows, too few to hold {held_out} of them out (validation={validation}); "
            f"give at least {_FEWEST_ROWS}."
        )
    order = torch.randperm(len(table), generator=torch.Generator().manual_seed(seed))
    return table.rows(order[held_out:]), table.rows(order[:held_out])


def _scale(net: HybridNet, table: Table, heteroscedastic: bool) -> None:
    """Let the network bring its inputs to (-1, 1), and its outputs to where the targets are."""
    if table.x.ndim != 2 or table.x.shape[1] != net.features:
        raise GEHValueError(f"X has shape {tuple(table.x.shape)}; the network takes (rows, {net.features}).")
    low, high = table.x.amin(dim=0), table.x.amax(dim=0)
    net.low.copy_(low)
    net.span.copy_(high - low)
    if table.task == "classification":
        return
    low, span = table.y.amin(dim=0), table.y.amax(dim=0) - table.y.amin(dim=0)
    if heteroscedastic:
        low, span = torch.cat([low, 2 * span.log()]), torch.cat([span, torch.ones_like(span)])
    net.shift.copy_(low)
    net.stretch.copy_(span)


def _positive(name: str, value: float) -> float:
    if isinstance(value, bool) or not isinstance(value, (int, float)) or not 0 < value < math.inf:
        raise GEHValueError(f"{name}={value!r} must be a positive number.")
    return float(value)


@contextmanager
def _seeded(seed: int) -> Iterator[None]:
    """Draw the noise of training from ``seed``, and leave the global generators alone."""
    devices = list(range(torch.cuda.device_count()))
    with torch.random.fork_rng(devices=devices):
        torch.manual_seed(seed)
        yield
