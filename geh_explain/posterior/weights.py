"""Samples of the weights from any source: SGLD, HMC, Pyro, checkpoints of one training."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager
from itertools import chain
from typing import Any

from torch import Tensor, nn

from geh_explain.errors import GEHTypeError, GEHValueError
from geh_explain.posterior.by_draw import batch_samples, draws_at_once
from geh_explain.posterior.loading import StateDict, load_weights


class WeightSamples:
    """Samples of the weights, as state dicts or as a callable that returns the k-th one.

    A sample may hold some of the entries only, for instance those of the last layer; the others stay as they are in
    the model. Entries are parameters or buffers: batch statistics may differ from draw to draw. For hidden layers the
    samples must lie around one solution, so that unit 3 is the same unit in each of them.

    Parameters
    ----------
    samples
        State dicts, or ``callable(k)`` that returns the state dict of draw k = 0, 1, ... A callable is responsible for
        its own randomness; the seed of a run has no effect on it.

    See Also
    --------
    SWAG : a Gaussian fitted to checkpoints.
    Laplace : an approximation fitted by laplace-torch.

    Examples
    --------
    >>> import torch, geh_explain as geh
    >>> net = torch.nn.Sequential(torch.nn.Linear(3, 8), torch.nn.Tanh(), torch.nn.Linear(8, 1))
    >>> samples = [{k: v + 0.05 * torch.randn_like(v) for k, v in net.state_dict().items()} for _ in range(20)]
    >>> explainer = geh.GEHExplainer(net, posterior=geh.posterior.WeightSamples(samples))
    >>> explainer.explain(torch.randn(50, 3), groups=2, progress=False).geh.draws.shape
    (20, 3)
    """

    keeps_below = True

    def __init__(self, samples: Sequence[StateDict] | Callable[[int], StateDict]) -> None:
        if isinstance(samples, Mapping):
            raise GEHTypeError("WeightSamples: samples is a single state dict; pass a list of them, or a callable(k).")
        if not callable(samples):
            samples = list(samples) if isinstance(samples, Iterable) else []
            if not samples or not all(isinstance(sample, Mapping) for sample in samples):
                raise GEHTypeError(
                    "WeightSamples: samples must be a non-empty list of state dicts (mappings of names to tensors), or "
                    "a callable(k) that returns the k-th."
                )
        self.samples = samples

    @classmethod
    def from_pyro(cls, samples: Mapping[str, Tensor], prefix: str = "") -> WeightSamples:
        """Return the samples of Pyro's ``MCMC.get_samples()`` or ``Predictive``.

        Parameters
        ----------
        samples
            Tensors ``(draws, *shape)`` by name.
        prefix
            Removed from the names to get those of the model. Entries without it, such as a noise scale, are ignored.

        Examples
        --------
        >>> import torch, geh_explain as geh
        >>> sites = {"net.weight": torch.randn(50, 1, 3), "net.bias": torch.randn(50, 1), "sigma": torch.rand(50)}
        >>> len(geh.posterior.WeightSamples.from_pyro(sites, prefix="net.").samples)
        50
        """
        entries = {name.removeprefix(prefix): value for name, value in samples.items() if name.startswith(prefix)}
        counts = {len(value) for value in entries.values()}
        if len(counts) != 1:
            raise GEHValueError(
                f"from_pyro: samples has {len(entries)} entries that begin with prefix={prefix!r}, of {sorted(counts)} "
                "draws; pass at least one, all with the same number of draws in their first dimension."
            )
        return cls([{name: value[draw] for name, value in entries.items()} for draw in range(counts.pop())])

    def draws(self, model: nn.Module, n: int, seed: int) -> Iterator[AbstractContextManager[Any]]:
        """Yield the first ``n`` samples, or all if there are fewer. The seed has no effect."""
        if callable(self.samples):
            for draw in range(n):
                yield load_weights(model, _call(self.samples, draw), draw, "WeightSamples")
        else:
            for draw, sample in enumerate(self.samples[:n]):
                yield load_weights(model, sample, draw, "WeightSamples")

    def batched(self, model: nn.Module, draws: range, seed: int) -> AbstractContextManager[Any]:
        """Return several samples at once, see :class:`~geh_explain.posterior.protocols.BatchedPosterior`."""
        assert not callable(self.samples)
        samples = [self.samples[draw] for draw in draws]
        return batch_samples(model, samples, draws.start, "WeightSamples")

    def draws_at_once(self, model: nn.Module, fitting: int) -> int:
        """Return how many samples are computed at once: several if all of them hold linear layers only."""
        # A callable may draw from a generator of its own, and must be called once per draw.
        if callable(self.samples):
            return 1
        return draws_at_once(model, chain.from_iterable(self.samples), fitting)

    def __len__(self) -> int:
        if callable(self.samples):
            raise TypeError("WeightSamples of a callable have no length.")
        return len(self.samples)

    def __bool__(self) -> bool:
        return True

    def __repr__(self) -> str:
        if callable(self.samples):
            return f"WeightSamples({getattr(self.samples, '__name__', type(self.samples).__name__)})"
        return f"WeightSamples({len(self.samples)})"


def _call(sample: Callable[[int], StateDict], draw: int) -> StateDict:
    """Return ``sample(draw)``. A callable that only looks up samples has a limited number of them."""
    try:
        return sample(draw)
    except LookupError as error:
        raise GEHValueError(
            f"WeightSamples: the callable has no sample for k={draw} ({error!r}); request fewer draws, or pass a list."
        ) from error
