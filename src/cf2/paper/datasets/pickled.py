"""Planetoid's raw files are pickles. Here they are read as data: nothing that a pickle names is imported or called.

Arrays and matrices are stood in for by records of what the pickle says, and become arrays only when their sizes and
indices have been checked.
"""

from __future__ import annotations

import io
import math
import pickle
import pickletools
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
from scipy import sparse

from cf2.errors import CF2Error
from cf2.paper.datasets.storage import read_raw, require_size

# Those that numbers, strings, tuples, lists, dictionaries, arrays and matrices take, up to protocol 4.
OPCODES = {
    "PROTO", "FRAME", "STOP", "MARK", "NONE", "NEWTRUE", "NEWFALSE", "BININT", "BININT1", "BININT2", "LONG1",
    "BINSTRING", "SHORT_BINSTRING", "BINBYTES", "SHORT_BINBYTES", "BINUNICODE", "SHORT_BINUNICODE", "EMPTY_TUPLE",
    "TUPLE", "TUPLE1", "TUPLE2", "TUPLE3", "EMPTY_LIST", "APPEND", "APPENDS", "EMPTY_DICT", "SETITEM", "SETITEMS",
    "BINPUT", "LONG_BINPUT", "MEMOIZE", "BINGET", "LONG_BINGET", "GLOBAL", "STACK_GLOBAL", "REDUCE", "NEWOBJ",
    "BUILD",
}  # fmt: skip
NUMBERS = {"b1", "i1", "i2", "i4", "i8", "u1", "u2", "u4", "f4", "f8"}


class _Record:
    """What a pickle says of an array, a matrix or a type, and nothing else."""

    state: Any = None

    def __init__(self, *given: Any) -> None:
        self.given = given

    def __setstate__(self, state: Any) -> None:
        self.state = state


class _Array(_Record):
    pass


class _Sparse(_Record):
    pass


class _Type(_Record):
    pass


def _dictionary(*_: Any) -> dict[Any, Any]:
    return {}


def _bytes(text: str, *_: Any) -> bytes:
    return text.encode("latin1")  # how Python 3 writes bytes for Python 2


_STAND_INS: dict[tuple[str, str], Any] = {
    ("numpy", "ndarray"): _Array,
    ("numpy", "_reconstruct"): _Array,
    ("numpy", "dtype"): _Type,
    ("scipy", "csr_matrix"): _Sparse,
    ("collections", "defaultdict"): _dictionary,
    ("__builtin__", "list"): list,
    ("builtins", "list"): list,
    ("_codecs", "encode"): _bytes,
}


class _Records(pickle.Unpickler):
    def find_class(self, module: str, name: str) -> Any:
        found = _STAND_INS.get((module.split(".")[0], name))
        if found is None:
            raise pickle.UnpicklingError(f"something that would run {module}.{name}")
        return found


def read_matrix(path: Path) -> np.ndarray:
    """A dense or sparse matrix of finite numbers as float32 [rows, columns]."""
    found: np.ndarray = _reading(path, lambda content: _matrix(_load(content)))
    return found


def read_neighbours(path: Path) -> dict[int, list[int]]:
    """A dictionary from the number of a node to those of its neighbours."""
    found: dict[int, list[int]] = _reading(path, _neighbours)
    return found


def _reading(path: Path, make: Callable[[bytes], Any]) -> Any:
    content = read_raw(path)
    try:
        return make(content)
    except CF2Error:
        raise
    except Exception as error:  # whatever damage does to it
        raise CF2Error(
            f"Expected {path} to be an intact file of Planetoid that holds only arrays",
            got=error if isinstance(error, _Fault | pickle.UnpicklingError) else f"one that is damaged ({error})",
            do="Delete it and get it again.",
        ) from error


class _Fault(Exception):
    """What a file holds that it must not, in a few words."""


def _check(good: object, fault: str) -> None:
    if not good:
        raise _Fault(fault)


def _load(content: bytes) -> Any:
    """The records of a pickle, after a look at its opcodes: some take memory for sizes that they merely claim."""
    for count, (opcode, argument, _) in enumerate(pickletools.genops(content)):
        _check(opcode.name in OPCODES, f"one with the opcode {opcode.name}")
        if opcode.name == "LONG_BINPUT":
            _check(argument is not None and argument <= count, f"one that remembers at place {argument}")
    return _Records(io.BytesIO(content), encoding="latin1").load()


def _neighbours(content: bytes) -> dict[int, list[int]]:
    found = _load(content)
    _check(isinstance(found, dict), "no dictionary of neighbours")
    entries = 0
    for key, value in found.items():
        _check(type(key) is int and type(value) is list, "an entry that is no list of neighbours")
        entries += len(value)
        _check(entries <= len(content), "lists that stand for more than the file holds")
        _check(all(type(node) is int for node in value), "a neighbour that is no number")
    return dict(found)


def _matrix(found: Any) -> np.ndarray:
    dense = _from_sparse(found.state) if isinstance(found, _Sparse) else _array(found)
    _check(dense.ndim == 2, f"an array of {dense.ndim} dimensions")
    _check(np.isfinite(dense).all(), "a number that is not finite")
    return dense.astype(np.float32)


def _from_sparse(state: Any) -> np.ndarray:
    """A matrix in compressed rows, checked: scipy itself follows an index that is out of range out of its memory."""
    _check(isinstance(state, dict), "an empty matrix")
    rows, columns = _shape(state.get("_shape", state.get("shape")), 2)
    require_size(rows, columns)
    values, indices, ends = (_array(state.get(name)) for name in ("data", "indices", "indptr"))
    _check(indices.dtype.kind == ends.dtype.kind == "i", "indices that are no whole numbers")
    _check(values.ndim == indices.ndim == ends.ndim == 1, "indices that are no lists")
    _check(len(ends) == rows + 1 and ends[0] == 0, f"the ends of {len(ends) - 1} rows for {rows}")
    _check((ends[1:] >= ends[:-1]).all(), "rows that end before they begin")
    _check(ends[-1] == len(indices) == len(values), "rows that end elsewhere than the values")
    _check(((indices >= 0) & (indices < columns)).all(), f"a column that is not one of 0 to {columns - 1}")
    dense: np.ndarray = sparse.csr_matrix((values, indices, ends), shape=(rows, columns)).toarray()
    return dense


def _array(found: Any) -> np.ndarray:
    _check(isinstance(found, _Array) and found.state, "something else than an array")
    _, shape, kind, by_columns, content = found.state
    _check(isinstance(kind, _Type) and kind.given[0] in NUMBERS, "an array of something else than numbers")
    order = kind.state[1] if kind.state else "="
    dtype = np.dtype(f"{'>' if order == '>' else '<'}{kind.given[0]}")
    size = _shape(shape, len(shape))
    content = content.encode("latin1") if isinstance(content, str) else content
    whole = isinstance(content, bytes) and len(content) == math.prod(size) * dtype.itemsize
    _check(whole, f"more or fewer numbers than shape {size} has")
    return np.frombuffer(content, dtype).reshape(size, order="F" if by_columns else "C")


def _shape(given: Any, dimensions: int) -> tuple[int, ...]:
    good = isinstance(given, tuple) and len(given) == dimensions and all(type(n) is int and n >= 0 for n in given)
    _check(good, f"the shape {given!r:.40}")
    return tuple(given)
