"""Calls of `cf2.explain` that people make, right and wrong: small good calls, and what can be odd about each part.

A `Call` starts as a good one (`BASES`). A change (`CHANGES`) makes one part of it odd; several can be put together.
Nothing here shares code with the package.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from types import FunctionType
from typing import Any

import networkx
import numpy as np
import pandas
import torch
from torch import Tensor, nn
from torch_geometric.data import Batch, Data, HeteroData, InMemoryDataset, TemporalData
from torch_geometric.loader import DataLoader, NeighborLoader
from torch_geometric.nn import GCNConv, global_add_pool, global_mean_pool

from toys import LAYERS, GraphNet, NodeNet, WeightedNet

# -- models ---------------------------------------------------------------------------------------------------


class Takes(nn.Module):
    """One or two layers on a Data object."""

    def __init__(self, kind: str = "gcn", level: str = "node") -> None:
        super().__init__()
        torch.manual_seed(5)
        self.conv, self.head, self.level = LAYERS[kind](4, 6), nn.Linear(6, 3), level

    def forward(self, data: Data) -> Tensor:
        h = self.conv(data.x, data.edge_index).relu()
        return self.head(h if self.level == "node" else global_mean_pool(h, data.batch))


class OneLogit(nn.Module):
    """One output for two classes, on both sides of 0."""

    def __init__(self) -> None:
        super().__init__()
        torch.manual_seed(2)
        self.conv = GCNConv(4, 1, normalize=False)

    def forward(self, x: Tensor, edge_index: Tensor) -> Tensor:
        return 3 * self.conv(x, edge_index).squeeze(1)


class Weighted(nn.Module):
    """A graph classifier that takes edge weights."""

    def __init__(self) -> None:
        super().__init__()
        torch.manual_seed(4)
        self.conv, self.head = GCNConv(4, 6), nn.Linear(6, 2)

    def forward(self, x: Tensor, edge_index: Tensor, edge_weight: Tensor | None, batch: Tensor) -> Tensor:
        return self.head(global_add_pool(self.conv(x, edge_index, edge_weight).relu(), batch))


# -- calls ----------------------------------------------------------------------------------------------------


@dataclass
class Call:
    """One call of `cf2.explain`. `graphs` is what the data means; `wrap` makes of them what is passed."""

    level: str
    model: Any
    net: nn.Module  # the module inside of `model`
    graphs: list[Any]
    options: dict[str, Any] = field(default_factory=dict)
    wrap: Callable[[list[Any]], Any] | None = None

    def data(self) -> Any:
        if self.wrap is not None:
            return self.wrap(self.graphs)
        return self.graphs[0] if self.level == "node" else self.graphs

    @property
    def count(self) -> int:
        return len(self.graphs[0].x) if self.level == "node" else len(self.graphs)


def graph(seed: int = 0, nodes: int = 7, edges: int = 8, *, directed: bool = False) -> Data:
    draw = torch.Generator().manual_seed(seed)
    ends = torch.randint(0, nodes, (2, edges), generator=draw)
    ends = ends[:, ends[0] != ends[1]]
    ends = ends if directed else torch.cat([ends, ends.flip(0)], 1)
    return Data(x=torch.randn(nodes, 4, generator=draw), edge_index=ends, y=torch.arange(nodes) % 2)


def graphs() -> list[Data]:
    made = [graph(seed, nodes=5, edges=6) for seed in range(3)]
    for one in made:
        one.y = torch.tensor([1])
    return made


QUICK = {"method": "cf2", "effort": "quick", "epochs": 2}
RANKED = {"method": "gradient", "k": 2, "search": True, "effort": "quick"}


def _nodes(model: nn.Module, **options: Any) -> Call:
    return Call("node", model, model, [graph()], {"nodes": [2, 5], **options})


def _graphs(model: nn.Module, **options: Any) -> Call:
    return Call("graph", model, model, graphs(), options)


def _directed() -> Call:
    call = _nodes(NodeNet("gin", layers=2, seed=6), method="gnnexplainer", epochs=3, k=2)
    call.graphs[0].edge_index = graph(directed=True).edge_index
    return call


def _weighted() -> Call:
    call = _graphs(Weighted(), **QUICK)
    for one in call.graphs:
        one.edge_weight = torch.linspace(0.5, 2.0, one.num_edges)
    return call


BASES: dict[str, Callable[[], Call]] = {
    "gcn": lambda: _nodes(NodeNet("gcn", layers=2, seed=5), **QUICK),
    "gin": lambda: _nodes(NodeNet("gin", layers=2, seed=6), **RANKED),
    "gat": lambda: _nodes(NodeNet("gat", layers=2, seed=4), **QUICK, units=("edges", "features")),
    "sage": lambda: _nodes(NodeNet("sage", layers=2, seed=11).train(), method="random", k=2),
    "weighted": lambda: _nodes(
        WeightedNet("gcn", layers=2, seed=5), method="cf2-relaxed", epochs=3, question="factual"
    ),
    "one logit": lambda: _nodes(OneLogit(), **QUICK, output="logits", question="counterfactual"),
    "takes data": lambda: _nodes(Takes(), **QUICK, units="columns"),
    "directed": _directed,
    "graph gcn": lambda: _graphs(GraphNet("gcn", seed=1), method="cf-gnnexplainer", epochs=5),
    "graph gin": lambda: _graphs(GraphNet("gin", seed=11), **QUICK),
    "graph gat": lambda: _graphs(GraphNet("gat", seed=5).train(), **RANKED),
    "graph weighted": _weighted,
    "graph takes data": lambda: _graphs(Takes("sage", "graph"), **QUICK, units="edges,node_features"),
}

Change = Callable[[Call], None]
CHANGES: dict[str, Change] = {}


def change(name: str) -> Callable[[Change], Change]:
    def keep(function: Change) -> Change:
        assert name not in CHANGES
        CHANGES[name] = function
        return function

    return keep


def _option(option: str, value: Any) -> Change:
    made = isinstance(value, FunctionType)
    return lambda call: call.options.__setitem__(option, value(call) if made else value)


class Odd:
    """An object that nothing knows what to do with."""

    def __repr__(self) -> str:
        return "Odd()"


def _failing() -> Iterator[int]:
    yield 0
    raise RuntimeError("the user's own generator")


# -- nodes ----------------------------------------------------------------------------------------------------

NAN, INF, HUGE = float("nan"), float("inf"), 10**30
NODES: dict[str, Any] = {
    "int": 1,
    "numpy int": np.int32(1),
    "tuple": (0, 1),
    "range": range(2),
    "slice": slice(1, 3),
    "slice from the end": slice(-2, None),
    "empty slice": slice(50, 60),
    "slice of floats": slice(0.5, 2),
    "array": np.array([2, 0]),
    "array of uint8": np.array([1, 0], dtype=np.uint8),
    "tensor": torch.tensor([2, 1]),
    "tensor of int32": torch.tensor([2, 1], dtype=torch.int32),
    "scalar tensor": torch.tensor(1),
    "list of tensors": [torch.tensor(1), torch.tensor(2)],
    "mask": lambda call: torch.arange(call.count) < 2,
    "mask as array": lambda call: np.arange(call.count) < 2,
    "mask as list": lambda call: [place == 1 for place in range(call.count)],
    "mask as series": lambda call: pandas.Series([place == 1 for place in range(call.count)]),
    "mask of uint8": lambda call: torch.ones(call.count, dtype=torch.uint8),
    "empty mask": lambda call: torch.zeros(call.count, dtype=torch.bool),
    "short mask": torch.tensor([True]),
    "mask in 2-d": torch.ones(3, 2, dtype=torch.bool),
    "series": pandas.Series([1, 2], index=["a", "b"]),
    "index": pandas.Index([1, 2]),
    "series with gaps": pandas.Series([1, None], dtype="Int64"),
    "set": {2, 0},
    "set of oddities": {2, "a"},
    "generator": lambda call: (place for place in range(2)),
    "failing generator": lambda call: _failing(),
    "endless": lambda call: itertools.count(),
    "keys of a dict": {0: "a", 2: "b"}.keys(),
    "dict": {0: 1},
    "twice": [1, 1],
    "float": 1.0,
    "floats": [0.0, 1.0],
    "tensor of floats": torch.tensor([0.0]),
    "array of floats": np.array([0.0, NAN]),
    "string": "0",
    "strings": ["0", "1"],
    "bytes": b"01",
    "bool": True,
    "bools and ints": [True, 0],
    "none inside": [0, None],
    "negative": -1,
    "too large": [0, 70],
    "huge": HUGE,
    "nested": [[0, 1], [2]],
    "2-d": torch.tensor([[0, 1]]),
    "empty": [],
    "empty tensor": torch.zeros(0),
    "complex": [1j],
    "odd": Odd(),
    "objects": np.array([0, Odd()], dtype=object),
    "sparse": torch.tensor([0, 1]).to_sparse(),
    "meta": torch.zeros(2, dtype=torch.long, device="meta"),
    "nan": NAN,
    "nothing": None,
}
for _name, _value in NODES.items():
    CHANGES[f"nodes: {_name}"] = _option("nodes", _value)

# -- options --------------------------------------------------------------------------------------------------

ANY = {"none": None, "string": "x", "empty": "", "float": 1.5, "negative": -1, "huge": HUGE, "list": [1], "odd": Odd()}
WITHOUT_HUGE = {name: value for name, value in ANY.items() if name != "huge"}  # what would take that long
OPTIONS: dict[str, dict[str, Any]] = {
    "method": {**ANY, "near": "cf3", "random": "random", "relaxed": "cf2-relaxed", "pgexplainer": "pgexplainer"},
    "units": {
        **ANY,
        "twice": ["edges", "edges"],
        "features": "features",
        "columns": ("columns",),
        "nodes": "nodes",
        "array": np.array(["edges"]),
    },
    "question": {
        **ANY,
        "factual": "factual",
        "counterfactual": "counterfactual",
        "array": np.array(["why", "factual"]),
    },
    "target": {
        **ANY,
        "class": 0,
        "out of range": 9,
        "numpy": np.int64(1),
        "tensor": lambda call: torch.tensor([0, 1][: len(call.options.get("nodes") or [0])]),
        "floats": torch.tensor([0.0, 1.0]),
        "nan": NAN,
        "bool": True,
        "strings": ["a", "b"],
        "labels of all": lambda call: call.graphs[0].y,
        "by key": {0: 1, 1: 0, 2: 1, 3: 0},
        "by other keys": {8: 1},
        "2-d": [[0, 1]],
        "sparse": torch.tensor([0, 1]).to_sparse(),
        "meta": torch.zeros(2, device="meta"),
    },
    "search": {**ANY, "true": True, "one": 1, "numpy": np.True_},
    "seed": {**ANY, "good": 3, "numpy": np.int64(3), "whole float": 1.0, "bool": True},
    "output": {**ANY, "probabilities": "probabilities", "log": "log_probabilities", "logits": "logits"},
    "level": {**ANY, "node": "node", "graph": "graph"},
    "directed": {**ANY, "true": True, "false": False, "zero": 0},
    "masking": {**ANY, "messages": "messages"},
    "device": {**ANY, "cpu": torch.device("cpu"), "cpu:0": "cpu:0", "cuda": "cuda", "meta": "meta", "mps": "mps"},
    "max_units": {**ANY, "one": 1, "large": 10**12, "numpy": np.int32(2), "tensor": torch.tensor(2)},
    "reduce": {**ANY, "gradient": "gradient"},
    "trained": {**ANY, "path": "x.safetensors", "dict": {0: [(0, 1)]}},
    "progress": {**ANY, "true": True, "false": False, "function": lambda call: lambda done: None},
    "epochs": {**WITHOUT_HUGE, "nan": NAN, "numpy": np.int64(2), "tensor": torch.tensor(2), "zero": 0},
    "lr": {**ANY, "nan": NAN, "inf": INF, "zero": 0.0, "numpy": np.float32(0.1)},
    "lam": {**ANY, "nan": NAN, "inf": INF, "large": 1e300, "integer": 10**400},
    "threshold": {**ANY, "nan": NAN, "good": 0.9},
    "messages": {**ANY, "true": True, "false": False},
    "effort": {**ANY, "standard": "standard"},
    "confidence": {**ANY, "nan": NAN, "good": 0.3, "one": 1.0},
    "proof": {**WITHOUT_HUGE, "some": 50},
    "k": {**ANY, "nan": NAN, "numpy": np.int64(1), "more than there are": 1000},
    "unit": {"misspelt": "edges"},
    "settings": {"as one": {"k": 3}},
}
for _name, _values in OPTIONS.items():
    for _kind, _value in _values.items():
        CHANGES[f"{_name}: {_kind}"] = _option(_name, _value)


@change("both: max_units and reduce")
def _(call: Call) -> None:
    call.options |= {"max_units": 2, "reduce": "gradient"}


# -- what is passed as data -------------------------------------------------------------------------------------


class Kept(InMemoryDataset):
    """A data set in memory."""

    def __init__(self, graphs: list[Data]) -> None:
        super().__init__()
        self.data, self.slices = self.collate(graphs)


class Broken(torch.utils.data.Dataset[Any]):
    """A data set whose files are gone."""

    def __len__(self) -> int:
        return 2

    def __getitem__(self, index: int) -> Any:
        raise FileNotFoundError("graph.pt")


def _hetero(graph: Data) -> HeteroData:
    made = HeteroData()
    made["a"].x = graph.x
    made["a", "to", "a"].edge_index = graph.edge_index
    return made


def _networkx(graph: Data) -> networkx.Graph:
    return networkx.path_graph(3)


DATA: dict[str, Callable[[list[Data]], Any]] = {
    "one": lambda given: given[0],
    "list": list,
    "list of one": lambda given: given[:1],
    "tuple": tuple,
    "generator": lambda given: (one for one in given),
    "batch": lambda given: Batch.from_data_list(given),
    "batch without slices": lambda given: Batch(x=given[0].x, edge_index=given[0].edge_index),
    "data with a batch": lambda given: Data(
        **{name: given[0][name] for name in ("x", "edge_index")}, batch=torch.arange(given[0].num_nodes) % 2
    ),
    "loader": lambda given: DataLoader(given, batch_size=2, shuffle=True),
    "neighbour loader": lambda given: _neighbours(given[0]),
    "data set": Kept,
    "subset": lambda given: torch.utils.data.Subset(given, [0]),
    "array": lambda given: _array(given),
    "broken data set": lambda given: Broken(),
    "loader of a broken data set": lambda given: DataLoader(Broken(), batch_size=1),
    "hetero": lambda given: _hetero(given[0]),
    "list of hetero": lambda given: [_hetero(given[0])],
    "batch of hetero": lambda given: Batch.from_data_list([_hetero(given[0])]),
    "temporal": lambda given: TemporalData(
        src=torch.zeros(2), dst=torch.ones(2), t=torch.ones(2), msg=torch.ones(2, 1)
    ),
    "mixed": lambda given: [given[0], "x"],
    "mixed with None": lambda given: [given[0], None],
    "tensors": lambda given: (given[0].x, given[0].edge_index),
    "tensor": lambda given: given[0].x,
    "dict": lambda given: {"x": given[0].x, "edge_index": given[0].edge_index},
    "path": lambda given: "graphs.pt",
    "none": lambda given: None,
    "number": lambda given: 3,
    "odd": lambda given: Odd(),
    "class": lambda given: Data,
    "empty": lambda given: [],
    "empty data": lambda given: Data(),
    "set": lambda given: {1, 2},
    "networkx": lambda given: _networkx(given[0]),
    "list of networkx": lambda given: [_networkx(given[0])],
    "endless strings": lambda given: itertools.islice(itertools.repeat("x"), 3),
}


def _neighbours(graph: Data) -> Any:
    class Lazy(NeighborLoader):  # type: ignore[misc]
        def __init__(self) -> None:  # without the library that samples
            torch.utils.data.DataLoader.__init__(self, range(graph.num_nodes or 0))

    return Lazy()


def _array(given: list[Data]) -> np.ndarray:
    made = np.empty(len(given), dtype=object)
    for place, one in enumerate(given):
        made[place] = one
    return made


def _wrapping(wrap: Callable[[list[Any]], Any]) -> Change:
    return lambda call: setattr(call, "wrap", wrap)


for _name, _value in DATA.items():
    CHANGES[f"data: {_name}"] = _wrapping(_value)
