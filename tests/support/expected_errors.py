"""A small network with valid inputs, and a check of the error that a wrong argument raises."""

from contextlib import contextmanager

import pandas as pd
import pytest
import torch
from explaining import random_points
from torch import nn

import geh_explain as geh

ROWS = 24


class Net(nn.Module):
    def __init__(self, outputs=1, activation=nn.Tanh):
        super().__init__()
        self.encoder, self.act, self.head = nn.Linear(3, 5), activation(), nn.Linear(5, outputs)
        self.unused = nn.Linear(3, 5)

    def forward(self, x):
        return self.head(self.act(self.encoder(x)))


class Applied(nn.Module):
    def __init__(self, function):
        super().__init__()
        self.function = function

    def forward(self, x):
        return self.function(x)


def valid_points(rows=ROWS):
    """Return points (rows, 3) in single precision, which ``Net`` takes."""
    return random_points(rows, 3, seed=1, dtype=torch.float)


def frame():
    return pd.DataFrame(valid_points().numpy(), columns=["age", "size", "rooms"])


@contextmanager
def refused(kind, *words):
    """Expect a GEHError that is also of the builtin type ``kind`` and whose message has all ``words``."""
    with pytest.raises(geh.GEHError) as caught:
        yield
    assert isinstance(caught.value, kind)
    missing = [word for word in words if word not in str(caught.value)]
    assert not missing, f"{missing} not in: {caught.value}"


def cases(table):
    """Parametrize a test by a table {name: (function, type of error, words of the message ...)}."""
    return pytest.mark.parametrize(
        ("call", "kind", "words"), [(c, k, w) for c, k, *w in table.values()], ids=list(table)
    )
