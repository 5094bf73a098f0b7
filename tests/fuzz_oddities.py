"""Odd graphs and odd models for the calls of `fuzz_cases`: importing this adds them to its table of changes."""

from __future__ import annotations

import warnings
from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor, nn
from torch_geometric.data import Data
from torch_geometric.nn import GCNConv, Linear, global_add_pool
from torch_geometric.transforms import ToSparseTensor

from fuzz_cases import CHANGES, HUGE, INF, NAN, Call, Change, Odd
from toys import GraphNet, NodeNet

# -- models ---------------------------------------------------------------------------------------------------


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


class Careless(nn.Module):
    """Drops at random also in evaluation mode."""

    def __init__(self, level: str) -> None:
        super().__init__()
        torch.manual_seed(7)
        self.conv, self.level = GCNConv(4, 3), level

    def forward(self, x: Tensor, edge_index: Tensor, batch: Tensor | None = None) -> Tensor:
        h = nn.functional.dropout(self.conv(x, edge_index), 0.5)
        return h if self.level == "node" else global_add_pool(h, batch)


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


class OnlyInit(nn.Module):
    """Has a layer, and no forward."""

    def __init__(self) -> None:
        super().__init__()
        self.conv = GCNConv(4, 3)


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
    "no forward": lambda call: OnlyInit(),
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
    "careless": lambda call: Careless(call.level),
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

# -- graphs -----------------------------------------------------------------------------------------------------


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
