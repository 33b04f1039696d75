"""What a snapshot leaves alone: objects that are more than a part of the model, and large ones."""

import logging
import random
import threading
from types import SimpleNamespace

import numpy as np
import pytest
import torch
from torch import nn
from torch.utils.data import Dataset

from geh_explain.model import object_graph
from geh_explain.model.snapshot import Snapshot

pytestmark = pytest.mark.usefixtures("seeded")


class Rows(Dataset):
    """Data of the user: not a part of a model that refers to it."""

    def __init__(self):
        self.calls = 0


class Locked:
    """An object that several threads use."""

    def __init__(self):
        self.lock, self.calls = threading.Lock(), 0


class Logger(logging.Logger):
    """A logger of the user's own."""

    def __init__(self):
        super().__init__("own")
        self.calls = 0


@pytest.mark.parametrize("kind", [Rows, Locked, Logger])
def test_objects_that_are_more_than_a_part_of_the_model_are_left_alone(kind):
    model = nn.Linear(2, 1)
    model.held = kind()
    snapshot = Snapshot(model)
    model.held.calls = 3
    assert snapshot.changes() == []
    snapshot.restore()
    assert model.held.calls == 3


def test_global_generators_are_no_part_of_a_model_that_refers_to_them():
    model = nn.Linear(2, 1)
    model.generators = [np.random.mtrand._rand, random._inst, torch.default_generator]
    snapshot = Snapshot(model)
    np.random.rand()
    random.random()
    torch.rand(1)
    assert snapshot.changes() == []
    model.generators = [random.SystemRandom()]
    assert Snapshot(model).changes() == []


def test_what_modules_hold_is_found_before_objects_are_entered(monkeypatch):
    monkeypatch.setattr(object_graph, "MAX_OBJECTS", 3)
    model = nn.Sequential(nn.Linear(2, 2), nn.Sequential(nn.Linear(2, 1)))
    model.chain = SimpleNamespace(n=0, next=SimpleNamespace(n=0, next=SimpleNamespace(n=0, next=SimpleNamespace(n=0))))
    model[1][0].queue = [torch.zeros(1)]
    snapshot = Snapshot(model)
    link = model.chain
    while link is not None:
        link.n, link = 1, getattr(link, "next", None)
    model[1][0].queue[0].add_(1)
    assert snapshot.changes() == ["1.0.queue.0", "chain.n", "chain.next.n", "chain.next.next.n"]


def test_a_large_collection_in_an_object_is_not_searched():
    model = nn.Linear(2, 1)
    model.small, model.large = SimpleNamespace(rows=[[0]]), SimpleNamespace(rows=[[0]] * object_graph.MAX_VALUES)
    snapshot = Snapshot(model)
    model.small.rows[0][0] = model.large.rows[0][0] = 1
    assert snapshot.changes() == ["small.rows.0"]


def test_arrays_are_copied_up_to_a_limit():
    model = nn.Linear(2, 1)
    model.arrays = [np.zeros(2**22), np.zeros(3)]
    snapshot = Snapshot(model)
    for array in model.arrays:
        array[0] = 1
    assert snapshot.changes() == ["arrays.0", "arrays.1"]
    model.arrays[0] = np.zeros(2**23 + 1)
    snapshot = Snapshot(model)
    model.arrays[0][0] = model.arrays[1][0] = 2
    assert snapshot.changes() == ["arrays.1"]


def test_an_object_whose_attributes_cannot_be_read_is_left_alone():
    class Opaque:
        @property
        def __dict__(self):
            raise RuntimeError("not here")

    model = nn.Linear(2, 1)
    model.held = Opaque()
    assert Snapshot(model).changes() == []
