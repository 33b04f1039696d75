"""Functions of torch inside a network, each in one setting; tests/long has every function in all settings."""

from collections import Counter
from itertools import cycle, product

import torch
from torch_functions import compare_engines, row_functions

#: Every so many functions are tested.
STEP = 4


def test_functions_of_torch_give_the_hessians_of_double_backward():
    settings = cycle(product((True, False), (None, "first"), (torch.float64, torch.float32)))
    names, functions = zip(*row_functions().items(), strict=True)
    chosen = list(zip(names[::STEP], functions[::STEP], settings, strict=False))
    engines = Counter()
    for name, function, setting in chosen:
        try:
            engines[compare_engines(function, *setting)] += 1
        except AssertionError as error:
            raise AssertionError(f"{name}, gated, layer, dtype = {setting}") from error
    assert len(chosen) > 150
    assert engines["structured"] > 50
