"""From what torch_geometric passes to a model to what is explained: a graph or graphs, keys, classes."""

from __future__ import annotations

import inspect
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal

import torch
from torch import Tensor
from torch_geometric.data import Data

from cf2.errors import CF2Error, require
from cf2.instances import Graph, check_tensors

Kind = Literal["node", "edge", "graph", "constant"]
_CARRIER = {"node": "node_argument", "edge": "edge_argument", "graph": "node_graph_argument"}


@dataclass(frozen=True, eq=False)
class Question:
    """The model with its constant arguments in place, its graph or graphs, and how many outputs it has.

    `nodes[g]` are the nodes of graph g in the ids of the batch; empty where there is no batch to take apart.
    """

    model: torch.nn.Module
    source: Graph | Sequence[Data]
    outputs: int
    nodes: Sequence[Tensor] = ()


def question(
    model: torch.nn.Module,
    x: Tensor,
    edge_index: Tensor,
    kwargs: Mapping[str, Any],
    *,
    by_graph: bool,
    directed: bool | None,
) -> Question:
    """Sort the model's arguments by what they describe; a batch of graphs becomes graphs."""
    data = Data(x=x, edge_index=edge_index)
    x, edge_index = check_tensors(data, "the graph")
    batch = _batch(kwargs.get("batch"), x, edge_index) if by_graph else None
    graphs = 1 if batch is None else int(batch.max()) + 1
    constants: dict[str, Any] = {}
    names: dict[str, str] = {}  # ours -> the model's; ours say what a tensor describes
    for name, value in kwargs.items():
        if by_graph and name in ("batch", "batch_size"):
            continue  # the packed batch takes their place
        kind = _kind(name, value, x.size(0), edge_index.size(1), graphs if by_graph else None)
        if kind == "constant":
            constants[name] = value
            continue
        if kind == "graph":  # rides on the nodes of its graph, so that it is cut and packed with them
            value = value[x.new_zeros(x.size(0), dtype=torch.long) if batch is None else batch.to(value.device)]
        own = name if kind == "edge" and name.startswith("edge_") else f"{_CARRIER[kind]}_{name}"
        names[own] = name
        data[own] = value
    bound = bind(model, constants, names, kwargs)
    if not by_graph:
        return Question(bound, Graph(data, directed=directed), x.size(0))
    parts, nodes = _split(data, batch, graphs)
    return Question(bound, parts, graphs, nodes)


def _kind(name: str, value: object, nodes: int, edges: int, graphs: int | None) -> Kind:
    """What a keyword argument describes, by its length, as torch_geometric decides it for a Data object."""
    rows = value.size(0) if isinstance(value, Tensor) and value.dim() else -1
    if rows == edges and (edges != nodes or "edge" in name):
        return "edge"
    if rows == nodes:
        return "node"
    return "graph" if rows == graphs else "constant"


def bind(
    model: torch.nn.Module, constants: Mapping[str, Any], names: Mapping[str, str], given: Mapping[str, Any]
) -> torch.nn.Module:
    """The model itself where its arguments can be passed by name, else a module that passes them on."""
    parameters = inspect.signature(model.forward).parameters.values()
    plain = [p.name for p in parameters if p.kind in (p.POSITIONAL_OR_KEYWORD, p.KEYWORD_ONLY)]
    renamed = any(own != name for own, name in names.items())
    if not constants and not renamed and set(given) <= set(plain):
        return model
    passed = [name for name in plain[2:] if name not in constants or name == "edge_weight"]
    passed += [name for name in ("batch", "batch_size") if name in given]
    return _Bound(model, constants, names, dict.fromkeys([*passed, *names]))


class _Bound(torch.nn.Module):
    """A model with some arguments in place and others under names that say what they describe."""

    def __init__(
        self,
        model: torch.nn.Module,
        constants: Mapping[str, Any],
        names: Mapping[str, str],
        passed: Mapping[str, None],
    ) -> None:
        super().__init__()
        self.model = model
        self.supports_edge_weight = getattr(model, "supports_edge_weight", True)

        def forward(x: Tensor, edge_index: Tensor, **given: Any) -> Any:
            arguments = dict(constants)
            for own, value in given.items():
                one_a_graph = own.startswith(_CARRIER["graph"])
                arguments[names.get(own, own)] = value[_first(given["batch"])] if one_a_graph else value
            return model(x, edge_index, **arguments)

        # The predictor asks the signature what may be passed.
        kind = inspect.Parameter.POSITIONAL_OR_KEYWORD
        declared = [inspect.Parameter(name, kind) for name in ("x", "edge_index", *passed)]
        forward.__signature__ = inspect.Signature(declared)  # type: ignore[attr-defined]
        self.forward = forward


def _first(batch: Tensor) -> Tensor:
    """The first node of every graph of a packed batch."""
    return torch.searchsorted(batch, torch.arange(int(batch[-1]) + 1, device=batch.device))


def _batch(batch: Tensor | None, x: Tensor, edge_index: Tensor) -> Tensor | None:
    if batch is None:
        return None
    batch = batch.detach().cpu()
    require(
        batch.shape == (x.size(0),),
        f"Expected `batch` to give each of the {x.size(0)} nodes its graph",
        got=f"shape {tuple(batch.shape)}",
    )
    tail, head = batch[edge_index]
    require(
        bool((tail == head).all()),
        "Expected every edge to lie inside one graph of `batch`",
        got="one between two",
    )
    return batch


def _split(data: Data, batch: Tensor | None, graphs: int) -> tuple[list[Data], list[Tensor]]:
    """Each graph of a batch as data of its own, and its nodes in the ids of the batch."""
    if batch is None:
        return [data], []
    nodes = _members(batch, graphs)
    edges = _members(batch[data.edge_index[0].cpu()], graphs)
    local = torch.empty_like(batch)
    parts = []
    for number in range(graphs):
        local[nodes[number]] = torch.arange(len(nodes[number]))
        rows = {"node": nodes[number], "edge": edges[number]}
        part = Data(x=data.x[nodes[number]], edge_index=local[data.edge_index[:, edges[number]].cpu()])
        for name in data.keys():  # noqa: SIM118
            if name not in ("x", "edge_index"):
                part[name] = data[name][rows[name.split("_")[0]]]
        parts.append(part)
    return parts, nodes


def _members(group: Tensor, groups: int) -> list[Tensor]:
    """The positions of every group, ascending."""
    return list(torch.split(group.argsort(stable=True), torch.bincount(group, minlength=groups).tolist()))


def keys_of(index: int | Tensor | None, outputs: int) -> list[int]:
    """The rows of the model's output to explain, as torch would index them: ids, a mask, or all."""
    if index is None:
        return list(range(outputs))
    try:
        keys: list[int] = (
            torch.arange(outputs)[index.cpu() if isinstance(index, Tensor) else index].reshape(-1).tolist()
        )
    except (IndexError, TypeError) as error:
        got = index.tolist() if isinstance(index, Tensor) else index
        raise CF2Error(
            f"Expected `index` to choose among the model's {outputs} outputs", got=f"{got!r} ({error})"
        ) from error
    require(len(keys) > 0, "Expected `index` to choose at least one output of the model", got="none")
    return keys


def classes_of(target: Tensor, keys: Sequence[int], outputs: int) -> list[int]:
    """The class to explain of each key; `target` has one for every output of the model."""
    flat = torch.as_tensor(target).detach().cpu().reshape(-1)
    require(
        flat.numel() == outputs,
        f"Expected `target` to hold one class for each of the model's {outputs} outputs",
        got=f"shape {tuple(torch.as_tensor(target).shape)}",
    )
    chosen = flat[torch.tensor(keys)]
    require(
        bool((chosen == chosen.long()).all()) and bool((chosen >= 0).all()),
        "Expected `target` to hold classes, whole numbers from 0",
        got=chosen.tolist()[:5],
    )
    classes: list[int] = chosen.long().tolist()
    return classes
