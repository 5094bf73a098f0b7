"""Planetoid's raw files are pickles. Here they are read as data: nothing that a pickle names is imported or called.

Arrays and matrices are stood in for by records of what the pickle says, and become arrays only when their sizes and
indices have been checked.
"""

from __future__ import annotations

import io
import math
import pickle
import pickletools
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np
import torch
from scipy import sparse
from torch import Tensor
from torch_geometric.data import Data
from torch_geometric.utils import coalesce, remove_self_loops, subgraph

from cf2.errors import CF2Error
from cf2.samples import storage
from cf2.samples.datasets import EXPLAINED, Dataset
from cf2.samples.storage import read_raw, require_size

# Those that numbers, strings, tuples, lists, dictionaries, arrays and matrices take, up to protocol 4.
OPCODES = {
    "PROTO", "FRAME", "STOP", "MARK", "NONE", "NEWTRUE", "NEWFALSE", "BININT", "BININT1", "BININT2", "LONG1",
    "BINSTRING", "SHORT_BINSTRING", "BINBYTES", "SHORT_BINBYTES", "BINUNICODE", "SHORT_BINUNICODE", "EMPTY_TUPLE",
    "TUPLE", "TUPLE1", "TUPLE2", "TUPLE3", "EMPTY_LIST", "APPEND", "APPENDS", "EMPTY_DICT", "SETITEM", "SETITEMS",
    "BINPUT", "LONG_BINPUT", "MEMOIZE", "BINGET", "LONG_BINGET", "GLOBAL", "STACK_GLOBAL", "REDUCE", "NEWOBJ",
    "BUILD",
}  # fmt: skip
NUMBERS = {"b1", "i1", "i2", "i4", "i8", "u1", "u2", "u4", "f4", "f8"}


class _Array:
    """What a pickle says of an array, and nothing else."""

    state: Any = None

    def __init__(self, *given: Any) -> None:
        self.given = given

    def __setstate__(self, state: Any) -> None:
        self.state = state


class _Sparse(_Array):
    """The same of a sparse matrix."""


class _Type(_Array):
    """The same of a type of numbers."""


_STAND_INS: dict[tuple[str, str], Any] = {
    ("numpy", "ndarray"): _Array,
    ("numpy", "_reconstruct"): _Array,
    ("numpy", "dtype"): _Type,
    ("scipy", "csr_matrix"): _Sparse,
    ("collections", "defaultdict"): lambda *_: {},
    ("__builtin__", "list"): list,  # nothing is copied: a list of a million numbers could be, a million times
    ("builtins", "list"): list,
}


class _Records(pickle.Unpickler):
    def __init__(self, content: bytes) -> None:
        super().__init__(io.BytesIO(content), encoding="latin1")
        self._encoded: dict[str, bytes] = {}

    def _encode(self, text: str, *_: Any) -> bytes:
        """How Python 3 writes bytes for Python 2. A text that is named a million times is encoded once."""
        if text not in self._encoded:
            self._encoded[text] = text.encode("latin1")
        return self._encoded[text]

    def find_class(self, module: str, name: str) -> Any:
        if (module, name) == ("_codecs", "encode"):
            return self._encode
        stand_in = _STAND_INS.get((module.split(".")[0], name))
        if stand_in is None:
            raise pickle.UnpicklingError(f"something that would run {module}.{name}")
        return stand_in


@contextmanager
def _intact(path: Path) -> Iterator[None]:
    """Whatever damage does to a pickle is one error that names the file."""
    try:
        yield
    except CF2Error:
        raise
    except Exception as error:
        raise CF2Error(
            f"Expected {path} to be an intact file of Planetoid that holds only arrays",
            got=error if isinstance(error, _Fault | pickle.UnpicklingError) else f"one that is damaged ({error})",
            do="Delete it and get it again.",
        ) from error


def read_matrix(path: Path) -> np.ndarray:
    """A dense or sparse matrix of finite numbers as float32 [rows, columns]."""
    content = read_raw(path)
    with _intact(path):
        record = _load(content)
        dense = _dense(record.state) if isinstance(record, _Sparse) else _array(record)
        _check(dense.ndim == 2, f"an array of {dense.ndim} dimensions")
        _check(np.isfinite(dense).all(), "a number that is not finite")
        return dense.astype(np.float32)


def read_neighbours(path: Path) -> dict[int, list[int]]:
    """A dictionary from the number of a node to those of its neighbours."""
    content = read_raw(path)
    with _intact(path):
        neighbours = _load(content)
        _check(isinstance(neighbours, dict), "no dictionary of neighbours")
        entries = 0
        for key, value in neighbours.items():
            _check(type(key) is int and type(value) is list, "an entry that is no list of neighbours")
            entries += len(value)
            _check(entries <= len(content), "lists that stand for more than the file holds")
            _check(all(type(node) is int for node in value), "a neighbour that is no number")
        return dict(neighbours)


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
    return _Records(content).load()


def _dense(state: Any) -> np.ndarray:
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


def _array(record: Any) -> np.ndarray:
    _check(type(record) is _Array and record.state, "something else than an array")
    _, shape, kind, by_columns, content = record.state
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


# -- the sets -------------------------------------------------------------------------------------------------

CITESEER_CLASSES = ("AI", "ML", "IR", "DB", "Agents", "HCI")  # told by the classes' sizes
_PARTS = ("x", "tx", "allx", "y", "ty", "ally", "graph", "test.index")


def citeseer(root: str | Path | None = None) -> Dataset:
    """CiteSeer without the 15 papers that have no words: 3,312 papers, 3,703 words, 6 classes."""
    data = _read("CiteSeer", root)
    kept = (data.x.sum(dim=1) > 0).nonzero().view(-1)
    edge_index, _ = subgraph(kept, data.edge_index, relabel_nodes=True, num_nodes=data.num_nodes)
    graph = Data(x=data.x[kept], edge_index=edge_index, y=data.y[kept])
    return Dataset("citeseer", "node", [graph], 6, 3703, CITESEER_CLASSES, tuple(range(6)), first=EXPLAINED)


def planetoid(name: str, root: str | Path | None = None) -> Dataset:
    """Any set of Planetoid (Cora, CiteSeer, PubMed), with all of its nodes."""
    data = _read(name, root)
    classes = int(data.y.max()) + 1
    numbers = tuple(range(classes))
    width = int(data.x.shape[1])
    return Dataset(f"planetoid:{name}", "node", [data], classes, width, tuple(map(str, numbers)), numbers)


def _read(name: str, root: str | Path | None) -> Data:
    files = [f"ind.{name.lower()}.{part}" for part in _PARTS]
    directory = storage.raw_directory(root, "Planetoid", name, files, lambda: _urls(files))
    return storage.processed(f"planetoid-{name}", directory, files, lambda: _parse(name, directory))[0]


def _parse(name: str, directory: Path) -> dict[str, Tensor]:
    """The papers of the training part, then those of the test part, each where the list of test papers says."""
    paths = dict(zip(_PARTS, (directory / f"ind.{name.lower()}.{part}" for part in _PARTS)))
    read = {part: torch.from_numpy(read_matrix(paths[part])) for part in _PARTS[:6]}
    order = torch.from_numpy(_test_papers(paths["test.index"], len(read["allx"]), len(read["tx"])))
    x, y = (_in_order(read, letter, order, paths) for letter in "xy")
    _same(len(x), len(y), "papers with words and with a class", paths["ally"])
    edge_index = _edges(read_neighbours(paths["graph"]), len(x), paths["graph"])
    return storage.pack([Data(x=x, edge_index=edge_index, y=y.max(dim=1).indices)])


def _test_papers(path: Path, first: int, count: int) -> np.ndarray:
    """The numbers of the test papers in the order of the files: different ones from `first` on, perhaps with gaps."""
    papers = storage.read_numbers(path, np.int64)
    if papers.shape != (count, 1) or len(np.unique(papers)) != count or papers.min() != first:
        raise storage.damaged(path, f"{count} different numbers from {first} on", f"{papers.size} others")
    return papers[:, 0]


def _in_order(read: Mapping[str, Tensor], letter: str, order: Tensor, paths: Mapping[str, Path]) -> Tensor:
    """Words or classes of all papers; a number that no test paper has stands for one of which nothing is known."""
    begin, tests = read[f"all{letter}"], read[f"t{letter}"]
    _same(begin.shape[1], tests.shape[1], "columns", paths[f"t{letter}"])
    _same(len(tests), len(order), "test papers", paths[f"t{letter}"])
    count = int(order.max()) + 1
    storage.require_size(count, begin.shape[1])
    whole = begin.new_zeros(count, begin.shape[1])
    whole[: len(begin)] = begin
    whole[order] = tests
    return whole


def _edges(neighbours: Mapping[int, list[int]], count: int, path: Path) -> Tensor:
    tails = [node for node, others in neighbours.items() for _ in others]
    heads = [other for others in neighbours.values() for other in others]
    ends = [*tails, *heads]
    if ends and not 0 <= min(ends) <= max(ends) < count:
        raise storage.damaged(path, f"citations among the papers 0 to {count - 1}", f"{min(ends)} to {max(ends)}")
    edge_index, _ = remove_self_loops(torch.tensor([tails, heads], dtype=torch.long))
    coalesced: Tensor = coalesce(edge_index, num_nodes=count, sort_by_row=False)
    return coalesced


def _same(count: int, other: int, what: str, path: Path) -> None:
    if count != other:
        raise storage.damaged(path, f"as many {what} as the other files", f"{other} and {count}")


def _urls(files: list[str]) -> list[str]:
    from torch_geometric.datasets import Planetoid  # slow to import, and only downloads need it

    return [f"{Planetoid.url}/{file}" for file in files]
