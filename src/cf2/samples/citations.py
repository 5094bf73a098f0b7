"""Planetoid's raw files are pickles. Here they are read as data: nothing that a pickle names is imported or called."""

from __future__ import annotations

import pickle
from collections.abc import Mapping
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
from cf2.samples.storage import damaged

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
    numbers = tuple(range(int(data.y.max()) + 1))
    width = int(data.x.shape[1])
    return Dataset(f"planetoid:{name}", "node", [data], len(numbers), width, tuple(map(str, numbers)), numbers)


def _read(name: str, root: str | Path | None) -> Data:
    """The papers of the training part, then those of the test part, each where the list of test papers says."""
    files = {part: f"ind.{name.lower()}.{part}" for part in _PARTS}
    directory = storage.raw_directory(
        root, "Planetoid", name, list(files.values()), lambda: _urls(list(files.values()))
    )
    paths = {part: directory / file for part, file in files.items()}
    order = storage.read_numbers(paths["test.index"], np.int64)[:, 0]
    x, y = (_in_order(paths, letter, order) for letter in "xy")
    if len(x) != len(y):
        raise damaged(paths["ally"], "the classes of all papers", f"{len(y)} for {len(x)}")
    return Data(x=x, edge_index=_edges(paths["graph"], len(x)), y=y.max(dim=1).indices)


def _in_order(paths: Mapping[str, Path], letter: str, order: np.ndarray) -> Tensor:
    """Words or classes of all papers; a number that no test paper has stands for one of which nothing is known."""
    begin, tests = (read_matrix(paths[part + letter]) for part in ("all", "t"))
    fits = begin.shape[1] == tests.shape[1] and len(tests) == len(order) == len(set(order.tolist()))
    if not fits or order.min(initial=len(begin)) != len(begin):
        raise damaged(paths["test.index"], f"the numbers of the papers of {paths[f't{letter}'].name}", "others")
    count = int(order.max()) + 1
    storage.require_size(count, begin.shape[1])
    whole = torch.zeros(count, begin.shape[1])
    whole[: len(begin)] = torch.from_numpy(begin)
    whole[order] = torch.from_numpy(tests)
    return whole


def _edges(path: Path, papers: int) -> Tensor:
    try:
        neighbours = _load(path)
        # A list may be named many times over, so that a few bytes stand for more citations than any memory holds.
        if sum(map(len, neighbours.values())) > path.stat().st_size:
            raise damaged(path, "the neighbours of each paper", "lists that stand for more than the file holds")
        cited = [(node, other) for node, others in neighbours.items() for other in others]
        ends = np.array(cited).reshape(-1, 2).T
    except (AttributeError, TypeError, ValueError) as error:
        raise damaged(path, "the neighbours of each paper", str(error)) from error
    good = not ends.size or (ends.dtype == np.int64 and 0 <= ends.min() <= ends.max() < papers)
    if not good:
        raise damaged(path, f"citations among the papers 0 to {papers - 1}", "others")
    edge_index, _ = remove_self_loops(torch.from_numpy(ends.astype(np.int64)))
    coalesced: Tensor = coalesce(edge_index, num_nodes=papers, sort_by_row=False)
    return coalesced


def _urls(files: list[str]) -> list[str]:
    from torch_geometric.datasets import Planetoid  # slow to import, and only downloads need it

    return [f"{Planetoid.url}/{file}" for file in files]


# -- pickles --------------------------------------------------------------------------------------------------


class _Sparse:
    """The parts of a sparse matrix, which are checked before they are put together."""


_ALLOWED: dict[tuple[str, str], Any] = {
    ("numpy", "_reconstruct"): lambda *_: np.empty(0),  # numpy then checks the state that the pickle gives it
    ("numpy", "ndarray"): None,
    ("numpy", "dtype"): lambda kind, *_: np.dtype(kind),
    ("scipy", "csr_matrix"): _Sparse,
    ("collections", "defaultdict"): lambda *_: {},
    ("__builtin__", "list"): None,
    ("builtins", "list"): None,
}


class _Arrays(pickle._Unpickler):
    """The unpickler in Python: the one in C takes memory for sizes that a file merely claims."""

    def find_class(self, module: str, name: str) -> Any:
        package = module.split(".")[0]
        if (package, name) not in _ALLOWED:
            raise pickle.UnpicklingError(f"something that would run {module}.{name}")
        return _ALLOWED[package, name]


def _load(path: Path) -> Any:
    """What a pickle holds, made of arrays, sparse matrices, dictionaries, lists and numbers."""
    with storage.open_raw(path) as stream:
        try:
            return _Arrays(stream, encoding="latin1").load()
        except Exception as error:  # whatever damage makes of a pickle
            raise damaged(path, "arrays and nothing else", str(error) or type(error).__name__) from error


def read_matrix(path: Path) -> np.ndarray:
    """A dense or sparse matrix of finite numbers as float32 [rows, columns]."""
    given = _load(path)
    try:
        if isinstance(given, _Sparse):
            parts = vars(given)
            if not all(isinstance(parts[name], np.ndarray) for name in ("data", "indices", "indptr")):
                raise ValueError("a part of a sparse matrix is no array")  # a list may unfold to more than the file
            matrix = sparse.csr_matrix(
                (parts["data"], parts["indices"], parts["indptr"]), shape=parts.get("_shape", parts.get("shape"))
            )
            matrix.check_format(full_check=True)  # scipy would follow an index that is out of range out of its memory
            storage.require_size(*matrix.shape)
            given = matrix.toarray()
        if not isinstance(given, np.ndarray):
            raise ValueError("no array")
        dense: np.ndarray = given.astype(np.float32)
    except CF2Error:
        raise
    except Exception as error:  # numpy and scipy have many for parts that do not fit together
        raise damaged(path, "a matrix of numbers", str(error)) from error
    if dense.ndim != 2 or not np.isfinite(dense).all():
        raise damaged(path, "a matrix of finite numbers", f"{dense.ndim} dimensions, or other numbers")
    return dense
