"""TODO."""

from __future__ import annotations

from typing import Any

from torch.utils.data import BatchSampler, DataLoader, IterableDataset, RandomSampler, SequentialSampler


def in_order(loader: DataLoader[Any]) -> DataLoader[Any]:
    """Return a loader that reads a shuffled one's data in their own order, which per-row arguments refer to."""
    sampler = loader.sampler
    everything = isinstance(sampler, RandomSampler) and not sampler.replacement and loader.batch_sampler is not None
    if not everything or len(sampler) != len(loader.dataset):  # type: ignore[arg-type]
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
    """Tell whether a loader's rows come in the order of its data."""
    if isinstance(loader.dataset, IterableDataset):
        return True
    plain = loader.batch_sampler is None or type(loader.batch_sampler) is BatchSampler
    return plain and isinstance(loader.sampler, SequentialSampler)
