"""Everything that a function can remember between two calls, by value.

    before = held(model)
    model(x)
    changed(before, held(model))                    # "0.mean", or None

Walked are the attributes of all submodules, hooks, what functions close over and take by default,
the globals that their code names, attributes of user-defined classes, and whatever these contain.
The code of torch, numpy, the standard library and this package is not entered: what it keeps
between calls, it keeps in its objects.
"""

from __future__ import annotations

import collections
import functools
import hashlib
import random
import sys
import types
import weakref
from collections.abc import Iterator, Mapping
from typing import Any

import numpy as np
import torch
from torch import nn

__all__ = ["changed", "generator_states", "held"]

_LIBRARIES = frozenset(
    {*sys.stdlib_module_names, "torch", "numpy", "scipy", "functorch", "sumus"} - {"__main__"}
)
_OPAQUE = ("torch._", "logging")  # compilers, operators and loggers count their own calls
_ALIASES = ("_flat_weights", "_flat_weight_refs")  # of recurrent layers: their parameters once more
_PLAIN = (
    bool,
    int,
    float,
    complex,
    str,
    bytes,
    bytearray,
    range,
    slice,
    type(None),
    type(Ellipsis),
    torch.dtype,
    torch.device,
    torch.Size,
)
_NOT_STATE = frozenset(
    {
        "__dict__",
        "__weakref__",
        "__doc__",
        "__module__",
        "__annotations__",
        "__qualname__",
        "_abc_impl",
        "__slots__",
    }
)
_MOST_VALUES = 200_000

Children = Iterator[tuple[str, Any]]


def held(
    watched: object, *, tensors_by_value: bool = True, skip: frozenset[int] = frozenset()
) -> dict[str, bytes]:
    """What can be reached from an object: path → digest of the value there.

    Args:
        tensors_by_value: False compares tensors and arrays by place and version, which costs
            nothing for large ones.
        skip: ids of values that are not looked at.
    """
    values: dict[str, bytes] = {}
    seen: set[int] = set()
    keep: list[Any] = []  # an id stays unique as long as its object lives
    waiting = [("", watched)]
    while waiting and len(values) < _MOST_VALUES:
        path, value = waiting.pop()
        if id(value) in skip:
            continue
        if isinstance(value, _PLAIN):
            values[path] = f"{type(value).__name__} {value!r}".encode()
            continue
        if id(value) in seen:
            values[path] = b"seen"
            continue
        seen.add(id(value))
        keep.append(value)
        leaf, children = _opened(value, tensors_by_value)
        values[path] = f"{type(value).__qualname__} ".encode() + leaf
        waiting += [(f"{path}{step}".lstrip(" ."), child) for step, child in children]
    return values


def changed(before: Mapping[str, bytes], after: Mapping[str, bytes]) -> str | None:
    """The first path at which two walks differ."""
    paths = sorted(path for path in {*before, *after} if before.get(path) != after.get(path))
    return next((path or "itself" for path in paths), None)


def generator_states() -> dict[str, bytes]:
    """The states of the process's random generators."""
    states = {
        "python's random": random.getstate(),
        "numpy.random": np.random.get_state(legacy=False),  # noqa: NPY002
    }
    digests = {
        name: hashlib.blake2b(repr(_unrolled(state)).encode()).digest()
        for name, state in states.items()
    }
    return digests | {"torch's random generator": torch.get_rng_state().numpy().tobytes()}


def _unrolled(state: Any) -> Any:
    """A state with its arrays written out: their repr leaves numbers out."""
    if isinstance(state, Mapping):
        return {name: _unrolled(value) for name, value in state.items()}
    return state.tobytes() if isinstance(state, np.ndarray) else state


def _opened(value: Any, tensors_by_value: bool) -> tuple[bytes, list[tuple[str, Any]]]:
    """What a value is by itself, and what it leads to."""
    try:
        if isinstance(value, torch.Tensor):
            return _tensor(value, tensors_by_value), list(vars(value).items()) if type(
                value
            ) is not nn.Parameter else []
        if isinstance(value, np.ndarray | np.generic):
            return _array(value, tensors_by_value)
        if isinstance(value, types.ModuleType | weakref.ref):
            return b"", []
        if isinstance(value, torch.Generator):
            return value.get_state().numpy().tobytes(), []
        return _shape(value), list(_children(value))
    except Exception:  # whatever a user's class does when it is looked at
        return b"unreadable %d" % id(value), []


def _tensor(value: torch.Tensor, by_value: bool) -> bytes:
    if not by_value:
        return f"{value.data_ptr()} {value._version} {tuple(value.shape)} {value.dtype}".encode()
    plain = (
        value.detach().cpu().contiguous().flatten().view(torch.uint8)
        if value.numel()
        else torch.zeros(0)
    )
    return (
        f"{tuple(value.shape)} {value.dtype} ".encode()
        + hashlib.blake2b(plain.numpy().data).digest()
    )


def _array(value: Any, by_value: bool) -> tuple[bytes, list[tuple[str, Any]]]:
    array = np.asarray(value)
    if array.dtype == object:
        return repr(array.shape).encode(), [
            (f"[{index}]", entry) for index, entry in enumerate(array.reshape(-1).tolist())
        ]
    if not by_value and array.nbytes > 4096:
        return f"{array.ctypes.data} {array.shape} {array.dtype}".encode(), []
    return f"{array.shape} {array.dtype} ".encode() + hashlib.blake2b(array.tobytes()).digest(), []


def _shape(value: Any) -> bytes:
    """What distinguishes a container or function besides its contents."""
    if isinstance(value, Mapping | list | tuple | set | frozenset | collections.deque):
        return b"%d" % len(value)
    if isinstance(value, types.FunctionType):
        return value.__code__.co_code
    if isinstance(value, types.GeneratorType):
        return b"%d" % (value.gi_frame.f_lasti if value.gi_frame else -1)
    if isinstance(value, functools._lru_cache_wrapper):
        # how often it was asked is nothing that a function can read
        return b"%d" % value.cache_info().currsize
    return b""


def _children(value: Any) -> Children:
    """The values that a value leads to, with the step that leads there."""
    if isinstance(value, Mapping):
        yield from (
            (f".{name}" if isinstance(name, str) else f"[{name!r:.40}]", entry)
            for name, entry in value.items()
        )
    elif isinstance(value, list | tuple | collections.deque):
        yield from ((f"[{index}]", entry) for index, entry in enumerate(value))
    elif isinstance(value, set | frozenset):
        yield from ((f"{{{index}}}", entry) for index, entry in enumerate(sorted(value, key=repr)))
    elif isinstance(value, nn.Module):
        yield from _module(value)
    elif isinstance(value, types.FunctionType):
        yield from _function(value)
    elif isinstance(value, types.MethodType | staticmethod | classmethod):
        yield "", value.__func__
        yield "", getattr(value, "__self__", None)
    elif isinstance(value, property):
        yield from (("", part) for part in (value.fget, value.fset) if part is not None)
    elif isinstance(value, functools.partial):
        yield from (("", value.func), (" argument", value.args), (" argument", value.keywords))
    elif isinstance(value, types.GeneratorType):
        yield from (
            (f".{name}", entry)
            for name, entry in (value.gi_frame.f_locals if value.gi_frame else {}).items()
        )
    elif isinstance(value, type):
        yield from _class(value)
    elif isinstance(value, functools._lru_cache_wrapper):
        yield "", value.__wrapped__
    else:
        yield from _instance(value)


def _module(module: nn.Module) -> Children:
    """Attributes of a module; parameters, buffers and submodules under their own names."""
    tables = ("_parameters", "_buffers", "_modules")
    for table in tables:
        yield from ((f".{name}", entry) for name, entry in vars(module)[table].items())
    others = (
        name
        for name in vars(module)
        if name not in tables and not (name in _ALIASES and isinstance(module, nn.RNNBase))
    )
    yield from ((f".{name}", vars(module)[name]) for name in others)
    yield f" {type(module).__name__}", type(module)


def _function(function: types.FunctionType) -> Children:
    """What a function closes over, its defaults, and the globals that its code names."""
    if _of_a_library(function):
        return
    for name, cell in zip(function.__code__.co_freevars, function.__closure__ or (), strict=True):
        if cell != types.CellType():
            yield f" closure {name}", cell.cell_contents
    yield " default", function.__defaults__
    yield " default", function.__kwdefaults__
    yield from ((f".{name}", entry) for name, entry in vars(function).items())
    names = _names(function.__code__)
    for name in sorted(names & function.__globals__.keys()):
        entry = function.__globals__[name]
        yield f" global {name}", entry
        if isinstance(entry, types.ModuleType) and not _library(entry.__name__):
            inside = sorted(names & vars(entry).keys())
            yield from ((f" global {name}.{inner}", vars(entry)[inner]) for inner in inside)


def _names(code: types.CodeType) -> set[str]:
    """Globals and attributes that code names, that of inner functions included."""
    inner = [constant for constant in code.co_consts if isinstance(constant, types.CodeType)]
    return {*code.co_names}.union(*map(_names, inner))


def _class(kind: type) -> Children:
    """What user-defined classes keep for all their instances."""
    for base in kind.__mro__:
        if not _of_a_library(base):
            yield from (
                (f".{name}", entry) for name, entry in vars(base).items() if name not in _NOT_STATE
            )


def _instance(value: Any) -> Children:
    """Attributes of any other object; of one without attributes, what it would be copied from."""
    kind = type(value)
    if kind.__module__.startswith(_OPAQUE):
        return
    slots = [name for base in kind.__mro__ for name in getattr(base, "__slots__", ())]
    attributes = {
        name: getattr(value, name)
        for name in slots
        if isinstance(name, str) and hasattr(value, name)
    }
    attributes |= getattr(value, "__dict__", {})
    yield from ((f".{name}", entry) for name, entry in attributes.items())
    if not _of_a_library(kind):
        yield f" {kind.__name__}", kind
    if isinstance(value, np.random.Generator):
        yield ".state", value.bit_generator.state
    elif not attributes and not callable(value):
        yield ".state", value.__reduce_ex__(4)[1:]


def _of_a_library(value: Any) -> bool:
    return _library(getattr(value, "__module__", None) or "")


def _library(name: str) -> bool:
    return name.partition(".")[0] in _LIBRARIES
