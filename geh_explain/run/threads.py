"""The number of torch threads."""

from __future__ import annotations

from collections.abc import Iterator

import torch

from geh_explain._process import safe_contextmanager


@safe_contextmanager
def one_thread() -> Iterator[None]:
    """Run torch with one thread, and restore the number of threads at the end.

    Sums over several threads differ in their last digits, and networks trained from them in the first.
    """
    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    try:
        yield
    finally:
        torch.set_num_threads(threads)
