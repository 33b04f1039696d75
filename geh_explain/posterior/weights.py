"""Samples of the weights: SWAG, SGLD, HMC, Laplace, checkpoints, ..."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, contextmanager
from typing import Any

import torch
from torch import Tensor, nn

from geh_explain.errors import GEHTypeError, GEHValueError
from geh_explain.posterior.protocols import Posterior

StateDict = Mapping[str, Tensor]


class WeightSamples:
    """Draws of the weights, as state dicts or as a callable that makes the k-th one.

    A state dict may hold some of the entries only (say, the last layer's); the others stay the
    model's own. Entries are parameters or buffers: batch statistics belong to their draw.

    >>> import torch, geh_explain as geh
    >>> net = torch.nn.Sequential(torch.nn.Linear(3, 8), torch.nn.Tanh(), torch.nn.Linear(8, 1))
    >>> samples = [{k: v + 0.05 * torch.randn_like(v) for k, v in net.state_dict().items()} for _ in range(20)]
    >>> explainer = geh.GEHExplainer(net, posterior=geh.posterior.WeightSamples(samples))
    >>> explainer.explain(torch.randn(50, 3), groups=2, progress=False).geh.draws.shape
    (20, 3)
    """

    def __init__(self, samples: Sequence[StateDict] | Callable[[int], StateDict]) -> None:
        if isinstance(samples, Mapping):
            raise GEHTypeError("WeightSamples: samples is a single state dict; pass a list of them, or a callable(k).")
        if not callable(samples):
            samples = list(samples) if isinstance(samples, Iterable) else []
            if not samples or not all(isinstance(sample, Mapping) for sample in samples):
                raise GEHTypeError(
                    "WeightSamples: samples must be state dicts (mappings of names to tensors), at least one, or a "
                    "callable(k) that returns the k-th."
                )
        self.samples = samples

    @staticmethod
    def from_laplace(la: Any, linearised: bool = True) -> Posterior:
        """Return the draws of a fitted ``laplace.Laplace`` (laplace-torch), over all weights or the last layer's.

        By default they are draws of the network's linear expansion in its weights, which stays where the data
        are; ``linearised=False`` puts the drawn weights into the network itself.
        """
        from geh_explain.posterior.laplace import Laplace

        return Laplace(la, linearised)

    @classmethod
    def from_swag(cls, checkpoints: Sequence[StateDict], rank: int = 20, scale: float = 1.0) -> WeightSamples:
        """Return draws of SWAG: a Gaussian around the mean of ``checkpoints``, which SGD left behind on its way.

        Its covariance is half diagonal, half of low ``rank``, from the last so many checkpoints (Maddox et al., 2019);
        ``scale`` multiplies it. Buffers, such as batch statistics, stay the model's own: update them for the
        mean weights first.

        >>> import torch, geh_explain as geh
        >>> net = torch.nn.Linear(3, 1)
        >>> path = [{k: v + 0.1 * torch.randn_like(v) for k, v in net.state_dict().items()} for _ in range(10)]
        >>> samples = geh.posterior.WeightSamples.from_swag(path)
        >>> samples.samples(0)["weight"].shape
        torch.Size([1, 3])
        """
        from geh_explain.posterior.swag import swag_sampler

        return cls(swag_sampler(checkpoints, rank, scale))

    @classmethod
    def from_pyro(cls, samples: Mapping[str, Tensor], prefix: str = "") -> WeightSamples:
        """Return samples as Pyro's MCMC or Predictive gives them: names to tensors ``(draws, *shape)``.

        Names are the model's own; a common ``prefix`` is taken off, and what does not begin with it is left out.

        >>> import torch, geh_explain as geh
        >>> drawn = {"net.weight": torch.randn(50, 1, 3), "net.bias": torch.randn(50, 1), "sigma": torch.rand(50)}
        >>> len(geh.posterior.WeightSamples.from_pyro(drawn, prefix="net.").samples)
        50
        """
        kept = {name.removeprefix(prefix): value for name, value in samples.items() if name.startswith(prefix)}
        counts = {len(value) for value in kept.values()}
        if len(counts) != 1:
            raise GEHValueError(
                f"from_pyro: samples has {len(kept)} entries that begin with prefix={prefix!r}, of {sorted(counts)} "
                "draws; all must have the same number, in their first dimension."
            )
        return cls([{name: value[draw] for name, value in kept.items()} for draw in range(counts.pop())])

    def draws(self, model: nn.Module, n: int, seed: int) -> Iterator[AbstractContextManager[Any]]:
        """Yield the first ``n`` samples, or all where there are fewer. A callable decides its own randomness."""
        if callable(self.samples):
            for draw in range(n):
                yield loaded(model, self._call(draw), draw)
        else:
            for draw, sample in enumerate(self.samples[:n]):
                yield loaded(model, sample, draw)

    def _call(self, draw: int) -> StateDict:
        assert callable(self.samples)
        try:
            return self.samples(draw)
        except LookupError as error:
            raise GEHValueError(
                f"WeightSamples: the callable has no sample for k={draw} ({error!r}); ask for fewer draws, or pass a "
                "list."
            ) from error

    def __repr__(self) -> str:
        return f"WeightSamples({self.samples!r})" if callable(self.samples) else f"WeightSamples({len(self.samples)})"


@contextmanager
def loaded(model: nn.Module, sample: StateDict, draw: int) -> Iterator[None]:
    """Let the model have a sample's weights for a while."""
    # Tied weights stand in a state dict under each of their names.
    own: dict[str, Tensor] = dict(model.named_parameters(remove_duplicate=False))
    own.update(model.named_buffers(remove_duplicate=False))
    _check(sample, own, draw)
    # Exchanging the storage, instead of copying into it, gives exactly the same tensors back. What is put in is a
    # copy, as a forward may change its buffers.
    saved = {name: own[name].data for name in sample}
    drawn = {name: value.detach().to(own[name], copy=True) for name, value in sample.items()}
    for name, value in drawn.items():
        if value.is_floating_point() and not bool(torch.isfinite(value).all()):
            raise GEHValueError(
                f"WeightSamples: entry {name!r} of sample {draw} has NaN or infinite values as {value.dtype}."
            )
    try:
        for name, value in drawn.items():
            own[name].data = value
        yield
    finally:
        for name, value in saved.items():
            own[name].data = value


def _check(sample: Any, own: Mapping[str, Tensor], draw: int) -> None:
    if not isinstance(sample, Mapping) or not sample:
        raise GEHTypeError(
            f"WeightSamples: sample {draw} is {type(sample).__name__}; each must be a non-empty state dict."
        )
    for name, value in sample.items():
        if name not in own:
            raise GEHValueError(
                f"WeightSamples: sample {draw} has the entry {name!r}, which the model has not; its entries are "
                f"{list(own)[:6]}{' ...' if len(own) > 6 else ''}. Strip prefixes such as 'module.'."
            )
        if not isinstance(value, Tensor):
            raise GEHTypeError(
                f"WeightSamples: entry {name!r} of sample {draw} is a {type(value).__name__}; entries are tensors."
            )
        if value.shape != own[name].shape:
            raise GEHValueError(
                f"WeightSamples: entry {name!r} of sample {draw} has shape {tuple(value.shape)}, the model's has "
                f"{tuple(own[name].shape)}."
            )
