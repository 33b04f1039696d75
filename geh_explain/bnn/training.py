"""Fitting a network to a table: checked arguments, held-out rows, scaling, then the training loop."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from typing import Any

import torch
from torch import Tensor, nn

from geh_explain._process import safe_contextmanager
from geh_explain._validation import check_int, check_positive
from geh_explain.bnn.data import Table, TableReader, check_columns
from geh_explain.bnn.fit_check import check_fit
from geh_explain.bnn.history import History
from geh_explain.bnn.hybrid import HybridNet
from geh_explain.bnn.trainer import Trainer, TrainingOptions
from geh_explain.data.reader import Reader
from geh_explain.errors import GEHTypeError, GEHValueError, warn
from geh_explain.model.preserve import device_and_dtype, preserved

#: Fewer rows than this are not split into training and held-out rows.
_MIN_ROWS = 10
#: Batches per epoch that the automatic batch size aims at.
_BATCHES_PER_EPOCH = 40
#: Bounds of the automatic batch size.
_MIN_BATCH = 16
_MAX_BATCH = 512
#: Trainings of at least this many epochs are compared with other models; shorter ones are trials.
_MIN_COMPARED = 50


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
    """Train a network with Adam, and leave it in eval mode with the weights of the best epoch.

    The objective is the mean negative log likelihood plus, for Bayesian layers (:class:`ConcreteDropout`,
    :class:`MeanField`, or any module with a method ``kl()``), their divergence from the prior over the number of
    rows. The divergence is weighted by 0.01 at first, growing linearly to 1 over ten epochs, or two thirds of all
    epochs if that is less. The learning rate falls to 0 by a cosine.

    Parameters
    ----------
    model
        Any module of one input tensor and one output tensor. :class:`HybridNet` is also given its scaling.
    X, y
        Inputs as the explainer takes them, and one target (or row of targets) per row.
    task
        ``"regression"``, ``"classification"``, or ``"auto"``: integer targets are classes if the network has several
        outputs, or one output and there are two values; all other targets are a regression.
    epochs
        Largest number of passes over the training rows.
    batch_size
        Rows per step; None for about 40 batches per epoch, of 16 to 512 rows.
    lr
        Initial learning rate of the weights; dropout rates and standard deviations learn three times as fast.
    validation
        Share of the rows to hold out, or a pair (X, y) of other rows. Their error decides which epoch is the best,
        among those in which the prior has its full weight: weights of earlier epochs have too little uncertainty.
    patience
        Epochs without a new best after which training ends.
    temperature
        Factor of the divergence. Values below 1 follow the data more closely, with less spread between draws.
    heteroscedastic
        The network also outputs the log variance of each target, after the means. Otherwise a regression has one noise
        variance per target, estimated during training.
    seed
        Decides on held-out rows, batches and noise. The global generators are left as they were.
    progress
        Show a progress bar.

    Returns
    -------
    History
        Losses by epoch, the best epoch and the noise of a regression. After an interruption by the keyboard the
        network has the best weights until then, and ``interrupted`` is True. ``check`` compares the network with an
        additive model and boosted trees on held-out rows, after 50 epochs and more; a warning says if the network has
        learned less than these.

    Raises
    ------
    GEHTypeError
        If ``model`` is not a module, has no parameters or several outputs, or ``y`` holds no numbers.
    GEHValueError
        If rows, targets and outputs do not match, data are constant or not finite, or an option is out of range.
    GEHRuntimeError
        If training diverges.

    Examples
    --------
    >>> import torch, geh_explain as geh
    >>> x = torch.rand(500, 2)
    >>> net = geh.bnn.HybridNet(2, hidden=(20,))
    >>> history = geh.bnn.fit(net, x, 3 * x[:, 0] + x[:, 1], epochs=20, progress=False)
    >>> history.best < 0.3
    True
    """
    n_outputs = _count_outputs(model, X)
    parameter = next((p for p in model.parameters() if p.is_floating_point()), None)
    if parameter is None:
        raise GEHTypeError("model has no floating-point parameters to fit; pass a network with weights.")
    reader = TableReader(task, n_outputs, heteroscedastic, like=parameter)
    train, held_out = _split(reader, X, y, validation, seed)
    if isinstance(model, HybridNet):
        check_columns(train)
        _set_scales(model, train, heteroscedastic)
    automatic_size = max(_MIN_BATCH, min(_MAX_BATCH, len(train) // _BATCHES_PER_EPOCH))
    options = TrainingOptions(
        epochs=check_int("epochs", epochs, 1),
        patience=check_int("patience", patience, 1),
        batch_size=automatic_size if batch_size is None else check_int("batch_size", batch_size, 1),
        lr=check_positive("lr", lr),
        temperature=check_positive("temperature", temperature),
        heteroscedastic=heteroscedastic,
        seed=seed,
        progress=progress,
    )
    trainer = Trainer(model, train, held_out, options)
    with _seeded(seed):
        history = trainer.run()
    if options.epochs < _MIN_COMPARED or not history.validation:
        return history
    check = check_fit(train, held_out, trainer.held_out_means(), seed)
    if check is not None and not check.has_learned and not history.interrupted:
        warn(
            f"the network has not learned what there is: {check.describe()}. Its interactions are then those of a poor "
            "fit. Try more epochs, another lr, or fit_ensemble(...) whose members are averaged."
        )
    return replace(history, check=check)


def _count_outputs(model: nn.Module, X: Any) -> int:
    """Return the number of outputs per row, for networks other than HybridNet by a forward pass of one row."""
    if not isinstance(model, nn.Module):
        raise GEHTypeError(f"model={model!r} is not a torch.nn.Module; pass a network.")
    if isinstance(model, HybridNet):
        return model.outputs
    device, dtype = device_and_dtype(model)
    rows = Reader(device=device, dtype=dtype, argument="X").read(X).first[:1]
    with preserved(model), torch.no_grad():
        out = model(*rows.inputs)
    if not isinstance(out, Tensor):
        raise GEHTypeError(f"model returns a {type(out).__name__}; fit takes networks that return one tensor.")
    return max(1, out[0].numel())


def _split(reader: TableReader, X: Any, y: Any, validation: float | tuple[Any, Any], seed: int) -> tuple[Table, Table]:
    """Return training rows and held-out rows, for a share of rows or a pair (X, y) in ``validation``."""
    table = reader.read(X, y)
    if isinstance(validation, tuple):
        if len(validation) != 2:
            raise GEHTypeError(
                f"validation has {len(validation)} entries; give a share between 0 and 1, or a pair (X, y)."
            )
        # The task is that of the training rows: few held-out rows may lack a class.
        return table, replace(reader, task=table.task).read(*validation)
    if not 0 < validation < 1:
        raise GEHValueError(f"validation={validation!r} must be a share between 0 and 1, or a pair (X, y).")
    n_held_out = max(1, round(validation * len(table)))
    if len(table) < _MIN_ROWS or n_held_out >= len(table):
        raise GEHValueError(
            f"X has {len(table)} rows, too few to hold {n_held_out} of them out (validation={validation}); "
            f"give at least {_MIN_ROWS}."
        )
    order = torch.randperm(len(table), generator=torch.Generator().manual_seed(seed))
    return table.rows(order[n_held_out:]), table.rows(order[:n_held_out])


def _set_scales(net: HybridNet, table: Table, heteroscedastic: bool) -> None:
    """Set the network's buffers such that inputs are scaled to (-1, 1) and outputs to the range of the targets."""
    if table.x.ndim != 2 or table.x.shape[1] != net.features:
        raise GEHValueError(
            f"X has shape {tuple(table.x.shape)}; the network takes (rows, {net.features}). Build it for the columns "
            "of X."
        )
    low = table.x.amin(dim=0)
    net.low.copy_(low)
    net.span.copy_(table.x.amax(dim=0) - low)
    if table.task == "classification":
        return
    shift = table.y.amin(dim=0)
    stretch = table.y.amax(dim=0) - shift
    if not bool((stretch > 0).all()):
        raise GEHValueError(
            "y is the same in all training rows; there is nothing to learn. Give more rows, or another seed, which "
            "holds other rows out."
        )
    if heteroscedastic:
        # Multiplying targets by c adds 2 log c to their log variances.
        shift, stretch = torch.cat([shift, 2 * stretch.log()]), torch.cat([stretch, torch.ones_like(stretch)])
    net.shift.copy_(shift)
    net.stretch.copy_(stretch)


@safe_contextmanager
def _seeded(seed: int) -> Iterator[None]:
    """Seed torch's generators, on the CPU and all GPUs, and restore their states at the end."""
    devices = list(range(torch.cuda.device_count()))
    with torch.random.fork_rng(devices=devices):
        torch.manual_seed(seed)
        yield
