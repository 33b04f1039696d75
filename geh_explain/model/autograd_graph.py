"""What the autograd graph of an output tells about the functions that computed it."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator
from typing import Any

import torch
from torch import Tensor
from torch.autograd.function import BackwardCFunction
from torch.autograd.graph import get_gradient_edge

#: Nodes of autograd whose results are probabilities, and of logarithms of them.
_PROBABILITIES = ("Sigmoid", "Softmax", "Hardsigmoid")
_LOG_PROBABILITIES = ("LogSigmoid", "LogSoftmax")
#: Nodes that change the shape or type of probabilities, limit them, or combine them with each other or with constants.
_COMBINING = (
    *("View", "UnsafeView", "Reshape", "Squeeze", "Unsqueeze", "Select", "Slice", "Index", "Alias", "Clone", "Expand"),
    *("Permute", "Transpose", "T", "ToCopy", "Cat", "Stack", "Unbind", "Split", "Clamp", "ClampMin", "ClampMax"),
    *("Minimum", "Maximum", "Where", "NanToNum", "Add", "Sub", "Rsub", "Mul", "Div", "Neg", "Mean", "Pow"),
)


def graph_nodes(value: Tensor) -> Iterator[Any]:
    """Yield all nodes of the autograd graph that leads to ``value``."""
    waiting, visited = [value.grad_fn], set()
    while waiting:
        node = waiting.pop()
        if node is not None and node not in visited:
            visited.add(node)
            yield node
            waiting += [child for child, _ in node.next_functions]


def coarsest_dtype(value: Tensor) -> torch.dtype:
    """Return the floating-point type with the fewest digits in the graph of ``value``.

    A model may compute in a lower precision than that of its inputs and outputs, as under ``torch.autocast``.

    >>> x = torch.ones(3, requires_grad=True)
    >>> coarsest_dtype(x.bfloat16().sin().double())
    torch.bfloat16
    """
    dtypes = {value.dtype, *(entry.dtype for node in graph_nodes(value) for entry in node._input_metadata)}
    floating: list[torch.dtype] = [dtype for dtype in dtypes if dtype.is_floating_point]
    return max(floating, key=lambda dtype: torch.finfo(dtype).eps)


def custom_functions(value: Tensor, t: Tensor) -> list[tuple[str, Any, list[int]]]:
    """Return the subclasses of ``torch.autograd.Function`` through which ``value`` depends on ``t``.

    For each call of one its class, the node of the graph, and the numbers of the inputs that depend on ``t``. Those of
    this package are left out.
    """
    nodes = list(graph_nodes(value))
    called = [node for node in nodes if issubclass(type(node), BackwardCFunction) and not _is_own(node)]
    if not called:
        return []
    users = defaultdict(list)
    for node in nodes:
        for child, _ in node.next_functions:
            users[child].append(node)
    waiting: list[Any] = [get_gradient_edge(t).node]
    dependent = set()
    while waiting:
        node = waiting.pop()
        if node not in dependent:
            dependent.add(node)
            waiting += users[node]
    return [
        (node.name(), node, [number for number, (child, _) in enumerate(node.next_functions) if child in dependent])
        for node in called
        if node in dependent
    ]


def _is_own(node: Any) -> bool:
    """Return whether a node is that of a function of this package."""
    return str(type(node)._forward_cls.__module__).partition(".")[0] == __name__.partition(".")[0]


def ends_in_probabilities(value: Tensor) -> bool:
    """Return whether ``value`` is computed from results of sigmoid or softmax by the steps in ``_COMBINING`` alone.

    >>> z = torch.zeros(3, 1, requires_grad=True)
    >>> ends_in_probabilities(torch.sigmoid(z).clamp(0.01, 0.99)), ends_in_probabilities(torch.sigmoid(z) * z)
    (True, False)
    """
    waiting, visited = [value.grad_fn], set()
    while waiting:
        node = waiting.pop()
        if node is None:
            return False
        children = [child for child, _ in node.next_functions if child is not None]
        name = node.name().rstrip("0123456789").removesuffix("Backward")
        if name in _PROBABILITIES or (name == "Exp" and children[0].name().startswith(_LOG_PROBABILITIES)):
            continue
        if not children or name not in _COMBINING:
            return False
        visited.add(node)
        waiting += [child for child in children if child not in visited]
    return True
