"""Calls of `cf2.explain` that people make, right and wrong: small good calls, and what can be odd about each part.

A `Call` starts as a good one (`BASES`). A change (`CHANGES`) makes one part of it odd; several can be put together.
Nothing here shares code with the package.
"""

from __future__ import annotations

import itertools
import warnings
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from types import FunctionType
from typing import Any

import numpy as np
import pandas
import torch
from torch import Tensor, nn
from torch_geometric.data import Batch, Data, HeteroData, InMemoryDataset, TemporalData
from torch_geometric.loader import DataLoader, NeighborLoader
from torch_geometric.nn import GCNConv, Linear, global_add_pool, global_mean_pool
from torch_geometric.transforms import ToSparseTensor

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
    "slice": slice(1, 3),
    "empty slice": slice(50, 60),
    "tensor": torch.tensor([2, 1]),
    "mask": lambda call: torch.arange(call.count) < 2,
    "empty mask": lambda call: torch.zeros(call.count, dtype=torch.bool),
    "series with gaps": pandas.Series([1, None], dtype="Int64"),
    "set": {2, 0},
    "generator": lambda call: (place for place in range(2)),
    "failing generator": lambda call: _failing(),
    "endless": lambda call: itertools.count(),
    "float": 1.0,
    "floats": [0.0, 1.0],
    "array of floats": np.array([0.0, NAN]),
    "string": "0",
    "bytes": b"01",
    "bool": True,
    "negative": -1,
    "too large": [0, 70],
    "huge": HUGE,
    "nested": [[0, 1], [2]],
    "empty": [],
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


DATA: dict[str, Callable[[list[Data]], Any]] = {
    "one": lambda given: given[0],
    "list": list,
    "generator": lambda given: (one for one in given),
    "batch": lambda given: Batch.from_data_list(given),
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
    "temporal": lambda given: TemporalData(
        src=torch.zeros(2), dst=torch.ones(2), t=torch.ones(2), msg=torch.ones(2, 1)
    ),
    "mixed": lambda given: [given[0], "x"],
    "tensors": lambda given: (given[0].x, given[0].edge_index),
    "odd": lambda given: Odd(),
    "empty": lambda given: [],
    "empty data": lambda given: Data(),
    "set": lambda given: {1, 2},
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

# -- odd models ---------------------------------------------------------------------------------------------------


class Says(nn.Module):
    """A layer, and then whatever a function makes of its output."""

    def __init__(self, make: Callable[[Tensor, Tensor], Any], level: str, classes: int = 3) -> None:
        super().__init__()
        torch.manual_seed(6)
        self.conv, self.make, self.level = GCNConv(4, classes), make, level

    def forward(self, x: Tensor, edge_index: Tensor, batch: Tensor | None = None) -> Any:
        h = self.conv(x, edge_index)
        return self.make(h if self.level == "node" else global_add_pool(h, batch), edge_index)


class Failing(nn.Module):
    """Raises an exception of any kind, always or on the second call."""

    def __init__(self, error: Exception, level: str, after: int = 0) -> None:
        super().__init__()
        self.inner = NodeNet("gcn", layers=2) if level == "node" else GraphNet("gcn")
        self.error, self.left = error, after

    def forward(self, x: Tensor, edge_index: Tensor, batch: Tensor | None = None) -> Tensor:
        if self.left <= 0:
            raise self.error
        self.left -= 1
        out: Tensor = self.inner(x, edge_index) if isinstance(self.inner, NodeNet) else self.inner(x, edge_index, batch)
        return out


class Lazy(nn.Module):
    """Learns the width of its input at the first call."""

    def __init__(self, level: str) -> None:
        super().__init__()
        self.lin, self.conv, self.level = Linear(-1, 5), GCNConv(5, 3), level

    def forward(self, x: Tensor, edge_index: Tensor, batch: Tensor | None = None) -> Tensor:
        h = self.conv(self.lin(x), edge_index)
        return h if self.level == "node" else global_add_pool(h, batch)


class ByNames(nn.Module):
    """A forward of any signature."""

    def __init__(self, forward: Callable[..., Any]) -> None:
        super().__init__()
        self.conv = GCNConv(4, 3)
        self.forward = forward


def _says(make: Callable[[Tensor, Tensor], Any], classes: int = 3) -> Callable[[Call], Any]:
    return lambda call: Says(make, call.level, classes)


def _state(out: Tensor, edge_index: Tensor) -> Tensor:
    out += torch.randn_like(out)
    return out


def _lazy_run_once(call: Call) -> nn.Module:
    model = Lazy(call.level)
    one = call.graphs[0]
    model(one.x, one.edge_index, torch.zeros(one.num_nodes, dtype=torch.long))
    return model


def _scripted(call: Call) -> Any:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        return torch.jit.trace(nn.Linear(4, 3), torch.ones(2, 4))


MODELS: dict[str, Callable[[Call], Any]] = {
    "none": lambda call: None,
    "string": lambda call: "model.pt",
    "function": lambda call: lambda x, edge_index: x,
    "class": lambda call: NodeNet,
    "state dict": lambda call: call.net.state_dict(),
    "odd": lambda call: Odd(),
    "no layers": lambda call: nn.Linear(4, 3),
    "no parameters": lambda call: nn.Identity(),
    "no forward": lambda call: nn.ModuleList([GCNConv(4, 3)]),
    "lazy": lambda call: Lazy(call.level),
    "lazy, run once": _lazy_run_once,
    "traced": _scripted,
    "meta": lambda call: _on_meta(call),
    "in parallel": lambda call: nn.DataParallel(call.net),
    "averaged": lambda call: torch.optim.swa_utils.AveragedModel(call.net),
    "sequential": lambda call: nn.Sequential(call.net),
    "float64": lambda call: call.net.double(),
    "float16": lambda call: call.net.half(),
    "bfloat16": lambda call: call.net.bfloat16(),
    "frozen": lambda call: call.net.requires_grad_(False),
    "wrong width": lambda call: NodeNet("gcn", features=9) if call.level == "node" else GraphNet("gcn", features=9),
    "node model for graphs, or the reverse": lambda call: NodeNet("gcn") if call.level == "graph" else GraphNet("gcn"),
    "careless": _says(lambda out, ends: nn.functional.dropout(out, 0.5)),
    "adds noise": _says(_state),
    "returns a tuple": _says(lambda out, ends: (out, ends)),
    "returns None": _says(lambda out, ends: None),
    "returns a list": _says(lambda out, ends: [out]),
    "returns a string": _says(lambda out, ends: "class 1"),
    "returns a dict": _says(lambda out, ends: {"out": out}),
    "returns a number": _says(lambda out, ends: 3.0),
    "returns a scalar": _says(lambda out, ends: out.sum()),
    "returns too few rows": _says(lambda out, ends: out[:1]),
    "returns too many rows": _says(lambda out, ends: torch.cat([out, out])),
    "returns no columns": _says(lambda out, ends: out[:, :0]),
    "returns one column": _says(lambda out, ends: out[:, :1]),
    "returns 3-d": _says(lambda out, ends: out[:, :, None]),
    "returns complex": _says(lambda out, ends: out + 1j),
    "returns integers": _says(lambda out, ends: (10 * out).long()),
    "returns bools": _says(lambda out, ends: out > 0),
    "returns numpy": _says(lambda out, ends: out.detach().numpy()),
    "returns nan": _says(lambda out, ends: out * NAN),
    "returns nan without edges": _says(lambda out, ends: out if ends.size(1) else out * NAN),
    "returns infinity": _says(lambda out, ends: out / 0),
    "returns zeros": _says(lambda out, ends: out * 0),
    "returns large numbers": _says(lambda out, ends: out * 1e30),
    "returns a sparse tensor": _says(lambda out, ends: out.to_sparse()),
    "returns detached": _says(lambda out, ends: out.detach()),
    "returns probabilities": _says(lambda out, ends: out.softmax(-1)),
    "returns log-probabilities": _says(lambda out, ends: out.log_softmax(-1)),
    "returns float64": _says(lambda out, ends: out.double()),
    "returns an expanded tensor": _says(lambda out, ends: out[:1].expand(out.shape)),
    "raises ValueError": lambda call: Failing(ValueError("wrong"), call.level),
    "raises AssertionError": lambda call: Failing(AssertionError(), call.level),
    "raises an own exception": lambda call: Failing(type("Own", (Exception,), {})("own"), call.level),
    "raises StopIteration": lambda call: Failing(StopIteration(), call.level),
    "raises MemoryError": lambda call: Failing(MemoryError(), call.level),
    "raises later": lambda call: Failing(ZeroDivisionError("later"), call.level, after=6),
    "takes nothing": lambda call: ByNames(lambda: None),
    "takes one": lambda call: ByNames(lambda x: x),
    "takes five": lambda call: ByNames(lambda x, edge_index, a, b, c: x),
    "takes keywords only": lambda call: ByNames(lambda *, x, edge_index, batch=None: x),
    "takes everything": lambda call: ByNames(lambda *args, **kwargs: args[0]),
}


def _on_meta(call: Call) -> nn.Module:
    with torch.device("meta"):
        return NodeNet("gcn") if call.level == "node" else GraphNet("gcn")


WRAPPERS = {"in parallel", "averaged"}  # the module inside stays what is asked about


def _modelling(name: str, make: Callable[[Call], Any]) -> Change:
    def apply(call: Call) -> None:
        call.model = make(call)
        if isinstance(call.model, nn.Module) and name not in WRAPPERS:
            call.net = call.model
        dtype = {"float64": torch.float64, "float16": torch.float16, "bfloat16": torch.bfloat16}.get(name)
        for one in call.graphs if dtype else ():
            if isinstance(one.get("x"), Tensor) and one.x.is_floating_point():
                one.x = one.x.to(dtype)
            if isinstance(one.get("edge_weight"), Tensor):
                one.edge_weight = one.edge_weight.to(dtype)

    return apply


for _name, _make in MODELS.items():
    CHANGES[f"model: {_name}"] = _modelling(_name, _make)

# -- odd graphs -----------------------------------------------------------------------------------------------------


def _set(name: str, make: Callable[[Data], Any], *, all_graphs: bool = True) -> Change:
    def apply(call: Call) -> None:
        for one in call.graphs if all_graphs else call.graphs[:1]:
            one[name] = make(one)

    return apply


def _sparse(one: Data, layout: str = "coo") -> Tensor:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        return one.x.to_sparse() if layout == "coo" else one.x.to_sparse_csr()


def _with_adjacency(keep: bool, weights: bool = False) -> Change:
    def apply(call: Call) -> None:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            for place, one in enumerate(call.graphs):
                if bool(((one.edge_index < 0) | (one.edge_index >= len(one.x))).any()):
                    continue  # torch_geometric itself would write where it must not
                if weights:
                    one.edge_weight = torch.linspace(0.5, 2, one.edge_index.size(1))
                call.graphs[place] = ToSparseTensor(remove_edge_index=not keep)(one)

    return apply


def _with(entry: float) -> Callable[[Data], Tensor]:
    def make(one: Data) -> Tensor:
        x = one.x.clone()
        x[0, 0] = entry
        return x

    return make


X: dict[str, Callable[[Data], Any]] = {
    "none": lambda one: None,
    "1-d": lambda one: one.x[:, 0],
    "3-d": lambda one: one.x[:, :, None],
    "no columns": lambda one: one.x[:, :0],
    "other width": lambda one: one.x[:, :3],
    "no rows": lambda one: one.x[:0],
    "one row": lambda one: one.x[:1],
    "zeros": lambda one: one.x * 0,
    "int64": lambda one: one.x.long(),
    "int8": lambda one: one.x.to(torch.int8),
    "bool": lambda one: one.x > 0,
    "float64": lambda one: one.x.double(),
    "float16": lambda one: one.x.half(),
    "bfloat16": lambda one: one.x.bfloat16(),
    "complex": lambda one: one.x + 1j,
    "nan": _with(NAN),
    "inf": _with(INF),
    "large": _with(1e38),
    "requires_grad": lambda one: one.x.clone().requires_grad_(),
    "with a history": lambda one: one.x.clone().requires_grad_() * 2,
    "sparse": _sparse,
    "csr": lambda one: _sparse(one, "csr"),
    "meta": lambda one: one.x.to("meta"),
    "numpy": lambda one: one.x.numpy(),
    "list": lambda one: one.x.tolist(),
    "expanded": lambda one: one.x[:1].expand(one.x.shape),
    "transposed": lambda one: one.x.t().contiguous().t(),
}
EDGES: dict[str, Callable[[Data], Any]] = {
    "none": lambda one: None,
    "empty": lambda one: one.edge_index[:, :0],
    "empty float": lambda one: torch.zeros(2, 0),
    "transposed": lambda one: one.edge_index.t(),
    "1-d": lambda one: one.edge_index[0],
    "float": lambda one: one.edge_index.float(),
    "int32": lambda one: one.edge_index.int(),
    "bool": lambda one: one.edge_index > 0,
    "negative": lambda one: one.edge_index - 1,
    "too large": lambda one: one.edge_index + 3,
    "huge": lambda one: one.edge_index + 2**61,
    "loops": lambda one: torch.cat([one.edge_index, torch.arange(3).repeat(2, 1)], 1),
    "only loops": lambda one: torch.arange(2).repeat(2, 1),
    "duplicates": lambda one: torch.cat([one.edge_index, one.edge_index], 1),
    "one direction": lambda one: one.edge_index[:, : one.edge_index.size(1) // 2],
    "one edge": lambda one: one.edge_index[:, :1],
    "sparse": lambda one: one.edge_index.to_sparse(),
    "meta": lambda one: one.edge_index.to("meta"),
    "numpy": lambda one: one.edge_index.numpy(),
    "list": lambda one: one.edge_index.tolist(),
}
OTHERS: dict[str, tuple[str, Callable[[Data], Any]]] = {
    "y: floats": ("y", lambda one: torch.rand(len(one.y))),
    "y: several labels": ("y", lambda one: torch.ones(len(one.y), 3, dtype=torch.long)),
    "y: too short": ("y", lambda one: torch.zeros(1, dtype=torch.long)),
    "y: string": ("y", lambda one: "carbon"),
    "y: complex": ("y", lambda one: torch.zeros(len(one.y), dtype=torch.complex64)),
    "y: sparse": ("y", lambda one: one.y.to_sparse()),
    "y: meta": ("y", lambda one: one.y.to("meta")),
    "y: negative": ("y", lambda one: one.y - 5),
    "extra: edge_weight": ("edge_weight", lambda one: torch.ones(one.edge_index.size(1))),
    "extra: edge_weight too short": ("edge_weight", lambda one: torch.ones(2)),
    "extra: edge_weight in 2-d": ("edge_weight", lambda one: torch.ones(one.edge_index.size(1), 1)),
    "extra: edge_weight float64": ("edge_weight", lambda one: torch.ones(one.edge_index.size(1), dtype=torch.float64)),
    "extra: edge_weight nan": ("edge_weight", lambda one: torch.full((one.edge_index.size(1),), NAN)),
    "extra: edge_weight int": ("edge_weight", lambda one: torch.ones(one.edge_index.size(1), dtype=torch.long)),
    "extra: edge_weight requires_grad": (
        "edge_weight",
        lambda one: torch.ones(one.edge_index.size(1), requires_grad=True),
    ),
    "extra: edge_weight string": ("edge_weight", lambda one: "heavy"),
    "extra: batch": ("batch", lambda one: torch.zeros(one.x.size(0), dtype=torch.long)),
    "extra: num_nodes": ("num_nodes", lambda one: 99),
    "extra: node_types": ("node_types", lambda one: torch.zeros(one.x.size(0))),
    "extra: scalar": ("scale", lambda one: torch.tensor(2.0)),
    "extra: string": ("name", lambda one: "aspirin"),
    "extra: number": ("weight", lambda one: HUGE),
    "extra: odd": ("thing", lambda one: Odd()),
    "extra: meta": ("pos", lambda one: torch.zeros(one.x.size(0), 2, device="meta")),
    "extra: sparse": ("pos", lambda one: torch.eye(one.x.size(0)).to_sparse()),
}
for _name, _value in X.items():
    CHANGES[f"x: {_name}"] = _set("x", _value)
for _name, _value in EDGES.items():
    CHANGES[f"edges: {_name}"] = _set("edge_index", _value)
for _name, (_key, _value) in OTHERS.items():
    CHANGES[_name] = _set(_key, _value)
CHANGES["x: float64 in one graph"] = _set("x", X["float64"], all_graphs=False)
CHANGES["x: other width in one graph"] = _set("x", X["other width"], all_graphs=False)
CHANGES["extra: edge_weight in one graph"] = _set("edge_weight", OTHERS["extra: edge_weight"][1], all_graphs=False)
CHANGES["adj_t: instead"] = _with_adjacency(keep=False)
CHANGES["adj_t: beside"] = _with_adjacency(keep=True)
CHANGES["adj_t: with weights"] = _with_adjacency(keep=False, weights=True)
CHANGES["adj_t: of other edges"] = _set("adj_t", lambda one: torch.eye(one.x.size(0)).to_sparse())
CHANGES["adj_t: dense"] = _set("adj_t", lambda one: torch.eye(one.x.size(0)))
CHANGES["adj_t: odd"] = _set("adj_t", lambda one: Odd())


def _single(call: Call) -> None:
    """One node, no edge."""
    call.graphs[:] = [Data(x=torch.ones(1, 4), edge_index=torch.zeros(2, 0, dtype=torch.long)) for _ in call.graphs]
    if call.level == "node":
        call.options["nodes"] = [0]


def _isolated(call: Call) -> None:
    """Nodes without an edge beside the others."""
    for one in call.graphs:
        one.x = torch.cat([one.x, torch.ones(2, 4)])
    if call.level == "node":
        call.options["nodes"] = [call.count - 1, 0]


CHANGES["graph: one node"] = _single
CHANGES["graph: isolated nodes"] = _isolated
