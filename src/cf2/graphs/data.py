"""What people pass as data, as one Data object or a sequence of them; and every graph with an `edge_index`."""

from __future__ import annotations

import copy
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any, TypeAlias

import numpy as np
import torch
from torch import Tensor
from torch.utils.data import DataLoader
from torch_geometric.data import Batch, Data, HeteroData, TemporalData
from torch_geometric.utils import to_edge_index

from cf2.errors import CF2Error, reading, require

Graphs: TypeAlias = Data | HeteroData | Sequence[Data | HeteroData]
EXPECTED = "Expected `data` to be a Data object, or a list or data set of them"
TENSORS = "Combine the tensors: Data(x=x, edge_index=edge_index)."
_CURES: tuple[tuple[type | tuple[type, ...], str], ...] = (
    (TemporalData, "Temporal graphs are not supported."),
    ((str, bytes, Path), "Load the file first, for example with torch.load."),
    ((Tensor, np.ndarray), TENSORS),
    (Mapping, "Convert it to Data objects, for example with Data.from_dict, and pass a list of them."),
    (type, "Create an instance."),
)


def graphs_of(data: Any, level: str = "auto", *, positions: bool = False) -> Graphs:
    """One graph as it is; a Batch, a loader or a generator as the graphs that it stands for, in their order.

    `positions` says whether the user names some of what is explained: nodes of a batch, or graphs of it?
    """
    if isinstance(data, Batch):
        return _batched(data, level, positions)
    if isinstance(data, DataLoader):
        data = data.dataset
        graphs = _is_sequence(data) and not isinstance(data, range | Tensor)  # these are ids of nodes or links
        require(graphs, EXPECTED, got="a loader of subgraphs", do="Pass the Data object itself.")
    if isinstance(data, Data | HeteroData):
        return data
    if not (isinstance(data, np.ndarray) and data.dtype == object):
        _refuse(data, EXPECTED)
    if not _is_sequence(data):
        data = _listed(data)
    with reading(data, EXPECTED):
        count = len(data)
    require(count > 0, "Expected at least one graph to explain", got="an empty list")
    if isinstance(data, list | tuple):
        for position, graph in enumerate(data):
            check_graph(graph, position)
    if level in ("node", "pair"):
        require(count == 1, f'Expected one graph for level="{level}"', got=f"{count} graphs")
        return check_graph(data[0], 0)
    return data


def _refuse(value: Any, expected: str) -> None:
    """Say what to do about objects that are known, and are no graphs of ours."""
    for kinds, cure in _CURES:
        require(not isinstance(value, kinds), expected, got=_kind(value), do=cure)
    foreign = type(value).__module__.partition(".")[0] == "networkx"
    require(not foreign, expected, got="a networkx graph", do="Use torch_geometric.utils.from_networkx, and add `x`.")


def check_graph(graph: Any, position: Any) -> Data | HeteroData:
    """The graph at a position of the user's list, if it is one Data object."""
    expected = f"Expected graph {position} of `data` to be a Data object"
    _refuse(graph, expected)
    require(isinstance(graph, Data | HeteroData), expected, got=_kind(graph))
    batch = getattr(graph, "batch", None)
    several = isinstance(batch, Tensor) and batch.numel() > 0 and bool((batch != batch.flatten()[0]).any())
    require(
        not several,
        f"Expected graph {position} of `data` to be one graph",
        got="one with a `batch` of several",
        do="Pass a list of graphs, or the result of Batch.from_data_list.",
    )
    return graph


def _batched(data: Any, level: str, positions: bool) -> Graphs:
    if level in ("node", "pair"):
        return data
    require(
        level == "graph" or not positions,
        "Expected `level` for `nodes` of a Batch",
        got='level="auto"',
        do='Pass level="graph" for positions of its graphs, or level="node" for nodes of the batch as one graph.',
    )
    try:
        graphs: list[Data | HeteroData] = data.to_data_list()
    except Exception as error:  # torch_geometric raises several
        cure = "Pass a list of its graphs."
        raise CF2Error("Expected a Batch made by Batch.from_data_list", got="another one", do=cure) from error
    require(len(graphs) > 0, "Expected at least one graph to explain", got="an empty Batch")
    return graphs


def _is_sequence(data: object) -> bool:
    return hasattr(data, "__len__") and hasattr(data, "__getitem__")


def _listed(data: Any) -> list[Any]:
    require(isinstance(data, Iterable) and not isinstance(data, set | frozenset), EXPECTED, got=_kind(data))
    try:
        return list(data)
    except Exception as error:
        raise CF2Error(EXPECTED, got=f"{_kind(data)} that fails ({type(error).__name__}: {error})") from error


def described(value: object) -> str:
    """What a value is that should have been another tensor, as an error shows it."""
    if value is None:
        return "none"
    return f"shape {tuple(value.shape)}, {value.dtype}" if isinstance(value, Tensor) else type(value).__name__


def _kind(value: object) -> str:
    if isinstance(value, type):
        return f"the class {value.__name__} itself"
    return "None" if value is None else f"an object of type {type(value).__name__}"


def groups_of(given: Any, data: Any) -> Any:
    """Groups of edges as a Spec keeps them: numbers, one per column of `edge_index`, become pairs of nodes by name."""
    if given is None or isinstance(given, str | Mapping):
        return given
    edge_index: Any = getattr(data, "edge_index", None)
    expected = "Expected `groups` to be an attribute name, one number per edge, or named lists of edges"
    require(_is_plain(edge_index), expected, got=_kind(given), do="For several graphs, pass an attribute name.")
    with reading(given, expected):  # which may be a ragged list, or a tensor without values
        numbers = np.asarray(given.detach().cpu() if isinstance(given, Tensor) else given)
    good = numbers.dtype.kind in "iu" and numbers.shape == (edge_index.size(1),)
    require(good, expected, got=f"shape {numbers.shape} and dtype {numbers.dtype} for {edge_index.size(1)} edges")
    ends = edge_index.detach().cpu().t().numpy()
    return {str(number): ends[numbers == number].tolist() for number in np.unique(numbers[numbers >= 0]).tolist()}


def with_edge_index(data: Any, where: str = "the graph") -> Any:
    """The graph with the edges of `adj_t`, which ToSparseTensor makes, in `edge_index`; as it is without an `adj_t`."""
    adjacency = data.get("adj_t") if isinstance(data, Data) else None
    if adjacency is None:
        return data
    edge_index, known = edges_of(adjacency, where), data.get("edge_index")
    if known is not None:
        require(
            not _is_plain(known) or _same_edges(edge_index, known),
            f"Expected `adj_t` and `edge_index` of {where} to hold the same edges",
            got="different edges",
            do="Delete the wrong one, for example with del data.adj_t.",
        )
        edge_index = known  # what is wrong with it is said where it is checked
    plain = copy.copy(data)
    plain.edge_index = edge_index
    del plain.adj_t
    return plain


def _is_plain(edge_index: Any) -> bool:
    dense = isinstance(edge_index, Tensor) and edge_index.layout == torch.strided and not edge_index.is_meta
    return dense and edge_index.dim() == 2 and edge_index.size(0) == 2 and not edge_index.is_complex()


def is_matrix(edges: Any) -> bool:
    """Whether edges are given as a sparse matrix, torch's or the one of torch_sparse."""
    return hasattr(edges, _FOREIGN) or (isinstance(edges, Tensor) and edges.layout in _LAYOUTS and not edges.is_meta)


def edges_of(adjacency: Any, where: str) -> Tensor:
    """The `edge_index` of a transposed adjacency matrix of ones."""
    adjacency = getattr(adjacency, _FOREIGN)() if hasattr(adjacency, _FOREIGN) else adjacency
    cure = "Store the edges in `edge_index` and the values of the matrix in `edge_weight`."
    expected = f"Expected `adj_t` of {where} to be a sparse torch matrix of ones"
    if not isinstance(adjacency, Tensor) or adjacency.layout not in _LAYOUTS or adjacency.dim() != 2:
        raise CF2Error(expected, got=_kind(adjacency), do=cure)
    try:
        edge_index, values = to_edge_index(adjacency.detach().cpu())
    except RuntimeError as error:  # torch does not check the rows of a matrix that it is handed
        raise CF2Error(expected, got="an invalid matrix", do=cure) from error
    require(values.dim() == 1 and bool((values == 1).all()), expected, got="other values", do=cure)
    return edge_index.flip(0)  # type: ignore[no-any-return]


_FOREIGN = "to_torch_sparse_coo_tensor"  # how torch_sparse's SparseTensor becomes torch's own
_LAYOUTS = (torch.sparse_coo, torch.sparse_csr, torch.sparse_csc)


def _same_edges(*lists: Tensor) -> bool:
    high = max([int(edges.max()) for edges in lists if edges.numel()], default=0) + 1
    first, second = (np.unique(tail * high + head) for tail, head in (edges.cpu().numpy() for edges in lists))
    return np.array_equal(first, second)
