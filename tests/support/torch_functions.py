"""Functions of torch, torch.nn.functional and Tensor that map rows to rows and have two derivatives, found by trying.

Each is a part of a small network, to compare engines with each other.
"""

import inspect
import warnings

import torch
import torch.nn.functional as F
from torch import nn

import geh_explain as geh

#: Largest difference from double backward, relative to the largest interaction.
TOLERANCE = {torch.float32: 2e-3, torch.float64: 1e-7}
#: Columns of the tensors that functions take and return.
WIDTH = 4
#: Further arguments with which functions are tried, after the tensor itself.
_ARGUMENTS = {
    "": (),
    "number": (0.5,),
    "one": (1,),
    "tensor": ("other",),
    "number, tensor": (0.5, "other"),
    "two tensors": ("other", "other"),
    "two numbers": (-0.3, 0.4),
    "dimension": (-1,),
    "shape": ((WIDTH,),),
}
#: Names that are no functions of values, change global state, or print.
_EXCLUDED = ("set_", "manual_seed", "seed", "save", "load", "compile", "_", "share_memory", "requires_grad", "backward")


def _callables():
    """Yield the name and the function of everything public in the three namespaces."""
    for space, prefix in ((torch, "torch"), (F, "functional"), (torch.Tensor, "Tensor")):
        for name in sorted(dir(space)):
            function = getattr(space, name, None)
            if callable(function) and not inspect.isclass(function) and not name.startswith(_EXCLUDED):
                yield f"{prefix}.{name}", function


def _apply(function, name, arguments, x):
    """Return a function of ``x`` and ``2 - x``, as a tensor with the shape of x; in-place functions get a copy."""
    other = 2 - x
    values = [other if value == "other" else value for value in arguments]
    out = function(x * 1.0 if name.endswith("_") else x, *values)
    out = out[0] if isinstance(out, (tuple, list)) else out
    if not isinstance(out, torch.Tensor) or not (out.is_floating_point() or out.is_complex()):
        raise TypeError("no numbers")
    if out.is_complex():
        out = out.abs() ** 2
    if out.ndim == 0 or len(out) != len(x) or out.shape[1:].numel() not in (1, WIDTH):
        raise TypeError("another shape")
    out = out.reshape(len(x), -1)
    return out if out.shape[1] == WIDTH else torch.cat([out] * WIDTH, dim=1)


def _is_usable(function):
    """Return whether a function maps each row alone, is deterministic, smooth enough, and curved or not constant."""
    x = torch.rand(5, WIDTH, dtype=torch.double, generator=torch.Generator().manual_seed(0)) * 0.6 + 0.2
    t = x.clone().requires_grad_()
    out = function(t)
    if not out.requires_grad or not torch.isfinite(out).all():
        return False
    if not torch.equal(out, function(t)) or not torch.allclose(out.flip(0), function(t.flip(0))):
        return False
    (gradient,) = torch.autograd.grad(out.sum(), t, create_graph=True, allow_unused=True)
    if gradient is None or not torch.isfinite(gradient).all() or not gradient.abs().any():
        return False
    if gradient.requires_grad:
        torch.autograd.grad(gradient.square().sum(), t, allow_unused=True)
    return True


def row_functions():
    """Return the functions by name: (n, 4) -> (n, 4), of numbers between 0.2 and 0.8."""
    found = {}
    with warnings.catch_warnings(), torch.random.fork_rng():
        warnings.simplefilter("ignore")
        for name, function in _callables():
            for kind, arguments in _ARGUMENTS.items():

                def apply(x, function=function, name=name, arguments=arguments):
                    return _apply(function, name, arguments, x)

                try:
                    usable = _is_usable(apply)
                except Exception:  # whatever torch raises for arguments of the wrong kind
                    usable = False
                if usable:
                    found[f"{name}({kind})"] = apply
    return found


class GatedNetwork(nn.Module):
    """A network with one of the functions; gated, the first rows do not have it, as their first input is below 0."""

    def __init__(self, function, gated):
        super().__init__()
        torch.manual_seed(0)
        self.first, self.mix, self.last = nn.Linear(WIDTH, WIDTH), nn.Linear(WIDTH, WIDTH), nn.Linear(WIDTH, 1)
        self.function, self.gated = function, gated

    def forward(self, x):
        hidden = torch.sigmoid(self.mix(self.first(x))) * 0.6 + 0.2
        extra = self.function(hidden)
        if self.gated:
            extra = torch.where(x[:, :1] > 0, extra, torch.zeros_like(extra))
        return self.last(hidden + torch.tanh(extra))


def gated_points(dtype):
    """Return 40 rows; the gate is closed for the first eight."""
    x = torch.randn(40, WIDTH, dtype=dtype, generator=torch.Generator().manual_seed(1))
    x[:8, 0] = -1.0
    return x


def _explain(network, x, engine, layer):
    explainer = geh.GEHExplainer(network, layer, engine=engine, smooth=None, posterior=geh.posterior.PointEstimate())
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        return explainer.explain(x, groups=2, progress=False)


def compare_engines(function, gated, layer, dtype):
    """Return the engine that was chosen, or "error" where double backward has no answer; fail on a mismatch.

    A mismatch that the run itself finds and repairs is one too. Returns "contradicted" if double backward is reported.
    """
    network, x = GatedNetwork(function, gated).to(dtype), gated_points(dtype)
    try:
        expected = _explain(network, x, "exact", layer)
    except geh.GEHError:
        return "error"
    found = _explain(network, x, "auto", layer)
    assert not any("computed all draws again" in text for text in found.settings["warnings"])
    for measure in ("geh", "eah"):
        reference = expected.scores(measure).pair_mean
        difference = abs(found.scores(measure).pair_mean - reference).max()
        assert difference <= TOLERANCE[dtype] * max(reference.max(), 1e-6), found.settings["engine_reason"]
    contradicted = any("contradict differences" in text for text in expected.settings["warnings"])
    return "contradicted" if contradicted else found.settings["engine"]
