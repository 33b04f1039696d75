"""The variables of functions: what a callable refers to that is no argument of its call."""

from __future__ import annotations

import dis
from collections.abc import Callable, Iterator
from functools import lru_cache, partial
from types import CodeType, FunctionType, MethodType
from typing import Any


def variables(function: Any, reads_globals: Callable[[FunctionType], bool]) -> Iterator[tuple[str, Any]]:
    """Yield names and values of the variables of a function, bound method or partial.

    They are the variables of its closure, its defaults, its attributes (decorators keep the original function there),
    the object of a bound method, the arguments of a partial, and the globals that its code reads.

    Parameters
    ----------
    function
        The function, bound method or partial.
    reads_globals
        Returns whether the globals of a function are included.

    Examples
    --------
    >>> weight = 2.0
    >>> def product(x, bias=1):
    ...     return weight * x + bias
    >>> dict(variables(product, lambda function: True))
    {'bias': 1, 'weight': 2.0}
    """
    if isinstance(function, MethodType):
        yield "self", function.__self__
        yield "", function.__func__
    elif isinstance(function, partial):
        yield "", function.func
        yield from ((str(number), value) for number, value in enumerate(function.args))
        yield from function.keywords.items()
    elif isinstance(function, FunctionType):
        yield from _defaults(function)
        yield from _closure(function)
        yield from vars(function).items()
        for name in _globals_read(function.__code__) if reads_globals(function) else ():
            if name in function.__globals__:
                yield name, function.__globals__[name]


def _defaults(function: FunctionType) -> Iterator[tuple[str, Any]]:
    code, defaults = function.__code__, function.__defaults__ or ()
    yield from zip(code.co_varnames[code.co_argcount - len(defaults) : code.co_argcount], defaults, strict=True)
    yield from (function.__kwdefaults__ or {}).items()


def _closure(function: FunctionType) -> Iterator[tuple[str, Any]]:
    for name, cell in zip(function.__code__.co_freevars, function.__closure__ or (), strict=True):
        try:
            yield name, cell.cell_contents
        except ValueError:  # not assigned yet
            continue


@lru_cache(maxsize=1024)
def _globals_read(code: CodeType) -> tuple[str, ...]:
    """Return the names of the globals that code reads, also in functions that it defines."""
    names = {step.argval for step in dis.get_instructions(code) if step.opname == "LOAD_GLOBAL"}
    for constant in code.co_consts:
        if isinstance(constant, CodeType):
            names.update(_globals_read(constant))
    return tuple(sorted(names))
