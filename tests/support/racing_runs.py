"""Two processes that use the same checkpoint folders at the same moment."""

import multiprocessing
import sys
import warnings
from pathlib import Path

import numpy as np
import torch
from interrupted_runs import network, rows

import geh_explain as geh

OPTIONS = {"draws": 6, "groups": 2, "batch_size": 50, "progress": False}


def scores(seed, checkpoint=None):
    """Return the draws of the network with this seed, of which there are two."""
    return geh.GEHExplainer(network(seed)).explain(rows(100), **OPTIONS, checkpoint=checkpoint).geh.draws


def run(folders, seeds, barrier, outcomes, paths):
    """Explain one network per folder, each at the same moment as the other process; put draws or messages."""
    sys.path[:0] = paths
    torch.set_num_threads(1)
    warnings.simplefilter("error")  # a damaged draw would be one of the other process
    found = []
    for folder, seed in zip(folders, seeds, strict=True):
        barrier.wait(timeout=120)
        try:
            found.append(scores(seed, folder))
        except geh.GEHError as error:
            found.append(str(error))
        except Exception as error:  # the other process waits at the barrier
            found.append(repr(error))
    outcomes.put((seeds, found))


def race(folder: Path, rounds: int):
    """Run both processes; return the two outcomes (draws or message) and seeds of each round, and the folders.

    In every third round both explain the same network.
    """
    context = multiprocessing.get_context("spawn")
    barrier, outcomes = context.Barrier(2), context.Queue()
    folders = [folder / str(number) for number in range(rounds)]
    all_seeds = [[0] * rounds, [0 if number % 3 == 0 else 1 for number in range(rounds)]]
    processes = [
        context.Process(target=run, args=([str(path) for path in folders], seeds, barrier, outcomes, sys.path))
        for seeds in all_seeds
    ]
    for process in processes:
        process.start()
    found = [outcomes.get(timeout=300) for _ in processes]
    for process in processes:
        process.join()
    return [[(seeds[number], outcome[number]) for seeds, outcome in found] for number in range(rounds)], folders


def count_poisoned(folder: Path, rounds: int) -> int:
    """Return in how many rounds a process got draws that are not its own, or the folder holds draws of both."""
    expected = {seed: scores(seed) for seed in (0, 1)}
    poisoned = 0
    results, folders = race(folder, rounds)
    for outcomes, path in zip(results, folders, strict=True):
        finished = [(seed, found) for seed, found in outcomes if not isinstance(found, str)]
        refused = [found for _, found in outcomes if isinstance(found, str)]
        wrong = any(not np.array_equal(found, expected[seed]) for seed, found in finished)
        wrong |= any("belongs to another run" not in words and "is in use by" not in words for words in refused)
        wrong |= len({seed for seed, _ in finished}) != 1
        if wrong:
            poisoned += 1
            continue
        with warnings.catch_warnings():
            warnings.simplefilter("error")
            wrong |= not np.array_equal(scores(finished[0][0], path), expected[finished[0][0]])
        wrong |= any(file.suffix == ".part" for file in path.iterdir())
        poisoned += wrong
    return poisoned
