"""Random small networks of many kinds of parts, and their Hessians by two plain backward passes."""

from __future__ import annotations

import copy
import math
import re
import warnings
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

import numpy as np
import pytest
import reference
import torch
from hypothesis import note
from hypothesis import strategies as st
from network_modules import ALLOWED_ERRORS, CLOSE, MAX_UNITS, ROUNDING, ROWS, Call
from network_parts import ANYWHERE, BECOMES, BY_KIND, ESSENTIAL_EXACT, EXACT, LAST, SHAPES, Shape
from state_comparison import untouched
from torch import Tensor, nn
from torch.nn.attention import SDPBackend, sdpa_kernel

import geh_explain as geh


@dataclass(frozen=True)
class Case:
    model: nn.Module
    x: Tensor
    layer: str | None = None
    units: Any = None
    output: str = "raw"
    target: int | None = 0
    engine: str = "auto"


def build(kind: str, shape: Shape, names: list[str], outputs: int, seed: int, training: bool = False) -> nn.Sequential:
    """Return the named parts in sequence with a curved head, and weights that depend on the seed."""
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(seed)
        parts: list[nn.Module] = []
        for name in names:
            module, shape = BY_KIND[kind][name](shape)
            kind = BECOMES.get(name, kind)
            parts.append(module)
        parts += [nn.Flatten(), nn.Linear(math.prod(shape), 4), nn.Tanh(), nn.Linear(4, outputs)]
        model = nn.Sequential(*parts).double()
        with torch.no_grad():
            for module in model.modules():
                if isinstance(module, nn.modules.batchnorm._BatchNorm):
                    module.running_mean.normal_()
                    module.running_var.uniform_(0.5, 2)
    return model.train(training)


def data(shape: Shape, seed: int) -> Tensor:
    return torch.randn(ROWS, *shape, generator=torch.Generator().manual_seed(seed), dtype=torch.double)


@st.composite
def cases(draw: st.DrawFn) -> Case:
    kind = draw(st.sampled_from(list(SHAPES)))
    shape = draw(st.sampled_from(SHAPES[kind]))
    names: list[str] = []
    now = kind
    for _ in range(draw(st.integers(1, 5))):
        # Parts that are special to a kind of tensor are as likely as those that fit anywhere.
        special = [name for name in BY_KIND[now] if name not in ANYWHERE]
        names.append(draw(st.one_of(st.sampled_from(special), st.sampled_from(list(ANYWHERE)))))
        now = BECOMES.get(names[-1], now)
    outputs = draw(st.integers(1, 3))
    seed = draw(st.integers(0, 1000))
    model = build(kind, shape, names, outputs, seed, draw(st.booleans()))
    layers = [name for name, module in model.named_modules() if name and not isinstance(module, nn.ParameterList)]
    layer = draw(st.one_of(st.none(), st.sampled_from(layers)))
    case = Case(
        model,
        data(shape, seed),
        layer,
        draw(units_for(model, data(shape, seed), layer)),
        draw(st.sampled_from(["raw", "probability"])),
        draw(st.sampled_from([None, 0] if outputs == 1 else list(range(outputs)))),
        draw(st.sampled_from(["auto", "auto", "exact", "structured"])),
    )
    note(f"{kind} {shape}: {names}, {outputs} outputs, seed {seed}")
    note(f"layer={layer!r}, units={case.units!r}, output={case.output!r}, target={case.target}, engine={case.engine!r}")
    return case


def units_for(model: nn.Module, x: Tensor, layer: str | None) -> st.SearchStrategy[Any]:
    """Units that fit the layer, ``MAX_UNITS`` of them at most."""
    shape = seen_shape(model, x, layer)
    if shape is None:
        return st.none()
    total = math.prod(shape)
    usual = total if layer is None or len(shape) == 1 else min(shape)
    largest_subset = min(usual, 6)
    fitting: list[st.SearchStrategy[Any]] = []
    if (total if layer is None or len(shape) == 1 else max(shape)) <= MAX_UNITS:
        fitting.append(st.none())
    if largest_subset > 1:
        fitting.append(
            st.lists(st.integers(0, usual - 1), min_size=2, max_size=largest_subset, unique=True).map(geh.units.Subset)
        )
    if len(shape) > 1:
        fitting.append(st.sampled_from([1, -1]).map(geh.units.Channels))
    if len(shape) == 2:
        fitting.append(st.just(geh.units.Tokens()))
    if len(shape) in (2, 3):
        fitting.append(st.sampled_from([2, (1, 2)]).map(geh.units.Patches))
    if 1 < total <= MAX_UNITS:
        fitting.append(st.just(geh.units.Neurons()))
    if total > 2:
        fitting.append(st.just(geh.units.FeatureGroups({"first": [0], "others": list(range(1, total))})))
    return st.one_of(fitting) if fitting else st.none()


def seen_shape(model: nn.Module, x: Tensor, layer: str | None) -> Shape | None:
    """Return the shape of one row at the layer, None if it is not one row after the other."""
    if layer is None:
        return tuple(x.shape[1:])
    seen: list[Tensor] = []
    model = copy.deepcopy(model).eval()
    model.get_submodule(layer).register_forward_hook(lambda module, args, out: seen.append(_first(out)))
    with torch.no_grad(), _plain_kernels():
        model(x)
    return tuple(seen[0].shape[1:]) if seen and seen[0].ndim > 1 and len(seen[0]) == len(x) else None


def _first(out: Any) -> Tensor:
    return out if isinstance(out, Tensor) else out[0]


@contextmanager
def _plain_kernels() -> Iterator[None]:
    """Let attention use operations that have second derivatives."""
    fast = torch.backends.mha.get_fastpath_enabled()
    torch.backends.mha.set_fastpath_enabled(False)
    try:
        with sdpa_kernel(SDPBackend.MATH):
            yield
    finally:
        torch.backends.mha.set_fastpath_enabled(fast)


def directions(shape: Shape, units: str) -> Tensor:
    """Directions (D, *shape) of the units in ``result.settings["units"]``."""
    total = math.prod(shape)
    single = torch.eye(total).reshape(total, *shape)
    if subset := re.fullmatch(r"Subset\((\[.*?\]), of=(.*)\)", units):
        return directions(shape, subset[2])[[int(i) for i in subset[1].strip("[]").split(",")]]
    if units == "Neurons()":
        return single
    if channels := re.fullmatch(r"Channels\(dim=(-?\d)\)", units):
        dim = int(channels[1])
        return reference.channel_directions(shape, dim - 1 if dim > 0 else len(shape) + dim)
    if units == "Tokens()":
        return reference.channel_directions(shape, 0)
    if units.startswith("FeatureGroups"):
        return torch.stack([single[0], single[1:].sum(0)])
    height, width = (int(size) for size in re.findall(r"\d+", units)[:2])
    squares = []
    for top in range(0, shape[-2], height):
        for left in range(0, shape[-1], width):
            square = torch.zeros(shape)
            square[..., top : top + height, left : left + width] = 1
            squares.append(square)
    return torch.stack(squares)


#: Functions that torch differentiates once only, written with functions that it differentiates twice.
TWICE_DIFFERENTIABLE: dict[str, Callable[[Tensor], Tensor]] = {
    "hardsigmoid": lambda x: (x + 3).clamp(0, 6) / 6,
    "hardswish": lambda x: x * (x + 3).clamp(0, 6) / 6,
}


def plain_hessians(
    case: Case, units: str, replacements: dict[str, Callable[[Tensor], Tensor]] = TWICE_DIFFERENTIABLE
) -> np.ndarray:
    """Local Hessians (n, D, D): a hook that moves the units, and two backward passes."""
    model, shape = copy.deepcopy(case.model).eval(), seen_shape(case.model, case.x, case.layer)
    assert shape is not None
    for module in model.modules():
        if isinstance(module, Call):
            module.function = replacements.get(module.name, module.function)
    along = directions(shape, units).double()
    t = torch.zeros(ROWS, len(along), dtype=torch.double, requires_grad=True)
    shift = torch.einsum("nd,d...->n...", t, along)

    def move(module: nn.Module, args: Any, out: Any) -> Any:
        return out + shift if isinstance(out, Tensor) else (out[0] + shift, *out[1:])

    if case.layer is not None:
        model.get_submodule(case.layer).register_forward_hook(move)
    with _plain_kernels():
        out = model(case.x + shift if case.layer is None else case.x)
    if case.output == "probability":
        out = out.sigmoid() if out.shape[1] == 1 else out.softmax(1)
    value = out[:, case.target or 0].sum()
    hessians = torch.zeros(ROWS, len(along), len(along), dtype=torch.double)
    if value.requires_grad:
        (gradient,) = torch.autograd.grad(value, t, create_graph=True, materialize_grads=True)
        for unit in range(len(along) if gradient.requires_grad else 0):
            (row,) = torch.autograd.grad(gradient[:, unit].sum(), t, retain_graph=True, materialize_grads=True)
            hessians[:, unit] = row
    return hessians.numpy()


def refuting_warnings(model: nn.Module, result: geh.Interactions) -> list[str]:
    """Return the warnings that second derivatives are wrong: false alarms, except for models with a detached factor."""
    phrases = ["computed all draws again"]
    if not any(isinstance(module, Call) and module.name == "detach" for module in model.modules()):
        phrases.append("contradict differences of gradients")
    return [message for message in result.settings["warnings"] if any(phrase in message for phrase in phrases)]


def check_single_precision(case: Case, scale: float) -> int:
    """Explain a case in single precision with inputs of another scale; return the number of explanations.

    No second derivative may be reported as wrong.
    """
    explained = 0
    # More points than a case has, as only a part of them is compared.
    x = scale * torch.cat([case.x + 0.1 * k for k in range(8)]).float()
    for engine, smooth in (("exact", None), ("exact", "auto"), ("auto", "auto")):
        explainer = geh.GEHExplainer(
            copy.deepcopy(case.model).float(),
            case.layer,
            units=case.units,
            output=case.output,
            posterior=geh.posterior.PointEstimate(),
            smooth=smooth,
            engine=engine,
        )
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            try:
                result = explainer.explain(x, case.target, groups=1, draws=1, progress=False)
            except geh.GEHError:
                continue
        assert not refuting_warnings(case.model, result)
        explained += 1
    return explained


def check(case: Case) -> str:
    """Explain a case and compare with the reference; return the name of the engine, or "refused"."""
    labels = np.arange(ROWS) % 2
    with untouched(case.model), warnings.catch_warnings():
        warnings.simplefilter("ignore", geh.GEHWarning)
        try:
            result = geh.GEHExplainer(
                case.model,
                case.layer,
                units=case.units,
                output=case.output,
                posterior=geh.posterior.PointEstimate(),
                smooth=None,
                engine=case.engine,
            ).explain(case.x, case.target, groups=labels, draws=1, progress=False)
        except geh.GEHError as error:
            if not any(re.search(pattern, str(error)) for pattern in ALLOWED_ERRORS):
                raise
            return "refused"
    assert not refuting_warnings(case.model, result)
    if result.settings["engine"] == "difference":
        with pytest.raises(RuntimeError, match=r"derivative for .* is not implemented"):
            plain_hessians(case, result.settings["units"], replacements={})
        return "difference"
    local = plain_hessians(case, result.settings["units"])
    largest = np.abs(local).max()
    for scores, truth in (
        (result.aeh, reference.aeh(local)),
        (result.geh, reference.geh(local, labels)),
        (result.eah, reference.eah(local)),
    ):
        np.testing.assert_allclose(scores.mean, truth, rtol=0, atol=CLOSE * largest + ROUNDING)
    return str(result.settings["engine"])


#: All parts; those that fit anywhere for tokens only.
PARTS = [(kind, name) for kind, parts in BY_KIND.items() for name in parts if kind == "tokens" or name not in ANYWHERE]
#: Parts that are tested at each change: each part that the structured engine supports once, and a few others.
ESSENTIAL_PARTS = [
    (kind, name)
    for kind, name in PARTS
    if (kind == "tokens" or name not in LAST) and (name not in EXACT or name in ESSENTIAL_EXACT)
]


def check_part(kind: str, name: str) -> None:
    """Check a network of one part and a curved head against the reference."""
    shape = SHAPES[kind][0]
    assert check(Case(build(kind, shape, [name], 2, 0), data(shape, 0), target=1)) != "refused"


def for_parts(parts: list[tuple[str, str]]) -> pytest.MarkDecorator:
    """Parametrise a test by ``kind`` and ``name`` of a part."""
    return pytest.mark.parametrize(("kind", "name"), parts, ids=[f"{name}, {kind}" for kind, name in parts])


class RowsSecond(nn.Module):
    """A recurrent layer whose output has the tokens first, and the rows second."""

    def __init__(self) -> None:
        super().__init__()
        self.cell = nn.GRU(3, 4)
        self.head = nn.Sequential(nn.Linear(4 * ROWS, 5), nn.Tanh(), nn.Linear(5, 1))

    def forward(self, x: Tensor) -> Tensor:
        return self.head(self.cell(x.transpose(0, 1))[0].transpose(0, 1).flatten(1))
