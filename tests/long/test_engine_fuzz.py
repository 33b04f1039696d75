"""Every function of torch inside a network: the chosen engine gives the Hessians of double backward."""

from collections import Counter

import pytest
import torch
from torch_functions import compare_engines, row_functions

#: Functions whose derivative in torch is wrong: gradients pass logical functions in place, and attention mixes rows.
WRONG_DERIVATIVES = {"Tensor.logical_and_", "Tensor.logical_or_", "functional.scaled_dot_product_attention"}


@pytest.mark.parametrize("dtype", [torch.float64, torch.float32])
def test_no_function_of_torch_gives_another_hessian_than_double_backward(dtype):
    functions = row_functions()
    engines, mismatches, contradicted = Counter(), [], set()
    for name, function in functions.items():
        for gated in (False, True):
            for layer in (None, "first"):
                try:
                    engine = compare_engines(function, gated, layer, dtype)
                    engines[engine] += 1
                    contradicted |= {name.split("(")[0]} if engine == "contradicted" else set()
                except AssertionError as error:
                    mismatches.append((name, gated, layer, str(error)[:80]))
    assert len({name.split("(")[0] for name in functions}) >= 130
    assert engines["structured"] > 300
    # For each of two precisions: more than 5,000 comparisons together.
    assert sum(engines.values()) - engines["error"] >= 2500
    assert not mismatches
    assert contradicted <= WRONG_DERIVATIVES
