"""The order in which a ``DataLoader`` yields its rows.

Targets, group labels and additional arguments with one entry per row refer to the order of the dataset. They can be
matched with the rows only if the loader yields the rows in that order.
"""

from __future__ import annotations

from typing import Any

from torch.utils.data import BatchSampler, DataLoader, IterableDataset, RandomSampler, SequentialSampler

from geh_explain.data.streams import Length


def in_order(loader: DataLoader[Any]) -> DataLoader[Any]:
    """Return a loader without shuffling that yields the same rows in the order of the dataset.

    A loader that does not shuffle all of its dataset exactly once (one with its own sampler, with replacement, or over
    an iterable dataset) is returned unchanged.
    """
    sampler = loader.sampler
    is_permutation = isinstance(sampler, RandomSampler) and not sampler.replacement and loader.batch_sampler is not None
    if not is_permutation or len(sampler) != len(loader.dataset):  # type: ignore[arg-type]
        return loader
    return DataLoader(
        loader.dataset,
        batch_size=loader.batch_size,
        num_workers=loader.num_workers,
        collate_fn=loader.collate_fn,
        drop_last=loader.drop_last,
        worker_init_fn=loader.worker_init_fn,
        generator=loader.generator,
    )


def is_ordered(loader: DataLoader[Any]) -> bool:
    """Return whether the loader yields its rows in the order of its dataset.

    An iterable dataset has no other order than the one it yields, in which the batches of several workers alternate.
    """
    if isinstance(loader.dataset, IterableDataset):
        return loader.num_workers <= 1
    # A subclass of BatchSampler may pick rows of its own, whatever the sampler inside it.
    has_plain_batches = loader.batch_sampler is None or type(loader.batch_sampler) is BatchSampler
    # A loader that is given a batch sampler has a sampler of its own, which it does not use.
    sampler = getattr(loader.batch_sampler, "sampler", loader.sampler)
    return has_plain_batches and isinstance(sampler, SequentialSampler)


def declared_length(loader: DataLoader[Any]) -> Length:
    """Return how many rows or batches a loader has at most, by its own length.

    >>> declared_length(DataLoader(list(range(10)), batch_size=4)).rows
    12
    """
    try:
        n_batches = len(loader)
    except (TypeError, NotImplementedError):
        return Length()
    # Workers that share an iterable dataset may give more batches, of fewer rows.
    return Length(batches=n_batches) if loader.batch_size is None else Length(rows=n_batches * loader.batch_size)
