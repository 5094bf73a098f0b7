"""Is the model a function of the graph alone? Asked once, before anything is believed of it.

A verdict is a run of the model on another graph. It means nothing if the model gives another output for the same
graph (dropout, noise, a memory of earlier calls). If it depends on what else is packed beside it (statistics or a
softmax over everything in the batch), each graph must be run by itself.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import replace
from functools import partial
from typing import Any

import torch
from torch import Tensor

from cf2.errors import CF2Error, require
from cf2.graphs.graph import take_extras
from cf2.models import outputs
from cf2.units.kinds import Units, owners, pointer
from cf2.units.packs import Pack

log = logging.getLogger("cf2")

Run = Callable[[Pack, Tensor], Tensor]  # the model's rows on graphs in which only some units are there
Call = Callable[[Pack, Tensor, Tensor, None, Tensor | None], Tensor]  # on features and edges, and which columns it has
Differ = Callable[[Tensor, Tensor], Tensor]  # which rows are other numbers
MAX_COMPARED = 4  # instances on which the model is compared with itself
GOLDEN_RATIO = 0.6180339887498949
ALONE = (
    "The model's output for a graph depends on what else is in the batch, so each graph is run by itself, nodes and "
    "pairs on the whole graph. That is slow. To avoid this, enable running statistics in BatchNorm, and pass `batch` "
    "to every pooling and norm layer."
)
ONE_AT_A_TIME = (
    "The model takes one graph at a time, so each graph is run by itself. That is slow. To run many at once, let its "
    "forward take `batch` and pool the nodes by it, as in global_mean_pool(x, batch)."
)


def takes_one_graph(pack: Pack, call: Call) -> bool:
    """Whether the model runs on one graph and not on several side by side; if so, that is logged."""
    largest = pack.node_ptr.diff().max(0).indices

    def runs(number: int) -> bool:
        some = pack.take(largest.repeat(number))
        try:
            call(some, some.dense(), some.edge_index, None, None)
        except CF2Error:
            return False
        return True

    # The scores of two classes, without a dimension for the batch, could be a number for each of two graphs. A model
    # that does not run at all says so when it is asked for its rows.
    found = not (runs(2) and runs(3)) and runs(1)
    if found:
        log.warning("%s", ONE_AT_A_TIME)
    return found


def check_repeats(rows: Tensor, again: Tensor, differ: Differ) -> None:
    """Refuse a model whose rows for the same graphs are others the second time."""
    require(
        not differ(rows, again).any(),
        "Expected a model that gives the same output for the same graph",
        got=f"two runs in evaluation mode that differ by {float((rows - again).abs().max()):.2g}",
        do="Look for dropout (F.dropout without training=self.training), noise or stored state, and switch it off in "
        "evaluation mode.",
    )


def depends_on_others(pack: Pack, run: Run, differ: Differ, model: torch.nn.Module, precision: float) -> bool:
    """Whether the model's output for a graph depends on the graphs beside it in the batch; if so, that is logged.

    Some instances, as they are, with half of their units and with none, run side by side and one at a time; and once
    more with features that no two nodes share, for nodes that are all alike have the same mean in every company, and
    with edges all around, for without any a layer may say 0 to all. What goes on inside is compared as well: outputs
    may be rounded, saturated, or 0 by chance.
    """
    packed = pack.take(_different(pack).repeat(3))
    states = _states(packed)
    probe = partial(_mixes, states=states, run=run, differ=differ, model=model, precision=precision)
    found = probe(packed)
    if not found and packed.x.is_floating_point() and packed.sparse is None:
        other = replace(packed, x=packed.x * _shares(packed.x))
        try:
            found = probe(other) or probe(_with_rings(other))
        except CF2Error:  # features that are no numbers, such as categories
            found = False
    if found:
        log.warning("%s", ALONE)
    return found


def _mixes(packed: Pack, states: Tensor, run: Run, differ: Differ, model: torch.nn.Module, precision: float) -> bool:
    with _watched(model) as seen:
        together, inside = run(packed, states), list(seen)
        rows, parts = [], []
        for single, own in zip(packed.singles(), packed.split(states)):
            seen.clear()
            rows.append(run(single, own))
            parts.append(list(seen))
    alone = torch.cat(rows)
    known = ~together.isnan().any(1)  # of a graph without nodes there is nothing to compare
    if bool(differ(together[known], alone[known]).any()):
        return True
    if any(len(part) != len(inside) for part in parts):
        return False  # it takes other ways with other graphs
    nodes, by_type = packed.node_ptr.diff().tolist(), _by_type(packed)
    return any(
        _other_rows(value, steps, nodes, precision)
        # A model of a typed graph may put the nodes of a type of all graphs one after the other.
        and (by_type is None or len(value) != len(by_type) or _other_rows(value[by_type], steps, nodes, precision))
        for value, *steps in zip(inside, *parts)
    )


def _by_type(packed: Pack) -> Tensor | None:
    """Where in rows of all nodes, sorted by type, the rows of each instance are, sorted by type; None without types."""
    if "node_type" not in packed.extras:
        return None
    kind = packed.extras["node_type"][1]
    sorted_nodes = kind.argsort(stable=True)
    rank = torch.empty_like(sorted_nodes)
    rank[sorted_nodes] = torch.arange(len(kind), device=kind.device)
    return rank[sorted_nodes[packed.batch[sorted_nodes].argsort(stable=True)]]


@contextmanager
def _watched(model: torch.nn.Module) -> Iterator[list[Tensor]]:
    """What every module inside of a model returns, in the order of calls, as far as that is numbers."""
    seen: list[Tensor] = []

    def keep(module: torch.nn.Module, inputs: Any, out: Any) -> None:
        if isinstance(out, Tensor) and out.is_floating_point() and out.dim() and out.layout == torch.strided:
            seen.append(out.detach().flatten(1) if out.dim() > 1 else out.detach()[:, None])

    with ExitStack() as stack:
        for module in model.modules():
            if module is not model and not isinstance(module, torch.jit.ScriptModule):
                stack.callback(module.register_forward_hook(keep).remove)
        yield seen


def _other_rows(together: Tensor, parts: list[Tensor], nodes: list[int], precision: float) -> bool:
    """Whether rows of a step are other numbers one graph at a time; False where they are not those of nodes or graphs.

    Rows of edges are not compared: a layer that adds self-loops puts them behind the edges of all graphs.
    """
    if [len(part) for part in parts] not in (nodes, [1] * len(nodes)):
        return False
    if any(part.size(1) != together.size(1) for part in parts):
        return False
    alone = torch.cat(parts)
    if alone.shape != together.shape or torch.equal(alone, together):
        return False
    known = torch.isfinite(together).all(1) & torch.isfinite(alone).all(1)
    return bool(outputs.differ(together[known], alone[known], "regression", precision).any())


def _with_rings(pack: Pack) -> Pack:
    """The pack with an edge from each node to the next one of its instance, which no unit governs."""
    if any(kind == "edge" for kind, _ in pack.extras.values()) or pack.units.edges.further.numel():
        return pack
    nodes, owner = torch.arange(len(pack.x), device=pack.x.device), pack.batch
    following = torch.where(nodes + 1 == pack.node_ptr[owner + 1], pack.node_ptr[owner], nodes + 1)
    both = torch.cat([owners(pack.edge_ptr), owner])
    order = both.argsort(stable=True)
    edges = pack.units.edges
    first = torch.cat([edges.first, torch.full_like(nodes, -1)])[order]
    return replace(
        pack,
        edge_index=torch.cat([pack.edge_index, torch.stack([nodes, following])], 1)[:, order],
        edge_ptr=pointer(torch.bincount(both, minlength=pack.num_instances)),
        units=replace(pack.units, edges=edges._replace(first=first, every=False)),
    )


def _shares(x: Tensor) -> Tensor:
    """A number from 0.5 to 1 for each feature, so that none becomes larger than it was."""
    position = torch.arange(1, x.numel() + 1, device=x.device, dtype=torch.double).reshape(x.shape)
    return (0.5 + 0.5 * (position * GOLDEN_RATIO % 1.0)).to(x.dtype)


def _different(pack: Pack) -> Tensor:
    """A few instances of a pack: the largest and the smallest one, and others from all over it."""
    edges = pack.edge_ptr.diff()
    order = edges.argsort(stable=True).tolist()
    spread = torch.linspace(0, len(order) - 1, min(MAX_COMPARED, len(order))).long().tolist()
    return edges.new_tensor(list(dict.fromkeys([order[-1], order[0], *spread]))[:MAX_COMPARED])


def _states(packed: Pack) -> Tensor:
    """Every unit in the first third of the instances, every other one in the second, none in the last."""
    third, owner = packed.num_instances // 3, packed.units.owner
    half = golden_sequence(packed.units) < 0.5
    return torch.where(owner < third, True, torch.where(owner < 2 * third, half, False))


def golden_sequence(units: Units, stride: int | Tensor = 1) -> Tensor:
    """A number from 0 to 1 per unit, spread evenly over the units of each instance, the same for every pack."""
    position = torch.arange(units.count, device=units.ptr.device) - units.ptr[:-1][units.owner]
    return ((position + 1) * stride * GOLDEN_RATIO) % 1.0


def depends_on_order(pack: Pack, call: Call, differ: Differ) -> bool:
    """Whether the model's output changes when nodes and edges come in the opposite order.

    Some instances are run without some of their edges, four times others. What looks alike is then not the same to
    the model, so that a proof has to tell it apart.
    """
    return _turns(*some_edges(pack), call, differ)


def knows_nodes(whole: Pack, call: Call, differ: Differ) -> bool:
    """Whether the output for a whole graph is another one when its nodes are numbered the other way round.

    The model then holds something for each node, such as a trained embedding. Without some of them it would take the
    rows of others.
    """
    return _turns(whole, torch.arange(whole.edge_index.size(1), device=whole.x.device), call, differ)


def _turns(pack: Pack, stay: Tensor, call: Call, differ: Differ) -> bool:
    turned, edge_index = _in_opposite_order(pack, stay)
    rows = call(pack, pack.dense(), pack.edge_index[:, stay], None, stay)
    try:
        other = call(turned, turned.dense(), edge_index, None, stay.flip(0))
    except CF2Error:  # a layer may ask for edges in an order
        return True
    return bool(differ(rows, other).any())


def some_edges(pack: Pack) -> tuple[Pack, Tensor]:
    """Some instances of a pack four times, and the columns of the edges of another half of the units of each."""
    some = pack.take(_different(pack).repeat(4))
    units = some.units
    there = units.edges.present(units.there(golden_sequence(units, units.owner + 1) < 0.5))
    every = torch.arange(some.edge_index.size(1), device=some.edge_index.device)
    return some, every if there is None else every[there]


def _in_opposite_order(pack: Pack, columns: Tensor) -> tuple[Pack, Tensor]:
    """The nodes of each instance in the opposite order, and the ends of these edges likewise [2, e].

    The units of the pack are left as they were, and mean nothing in it.
    """
    ends = pack.node_ptr[:-1] + pack.node_ptr[1:] - 1
    turned = ends[pack.batch] - torch.arange(pack.x.size(0), device=pack.x.device)
    extras = take_extras(pack.extras, {"node": turned})
    other = replace(pack, **pack.features_of(turned), extras=extras, targets=turned[pack.targets])
    return other, turned[pack.edge_index[:, columns.flip(0)]]


@contextmanager
def unchanged(named: dict[str, Tensor], *, compare: bool) -> Iterator[None]:
    """Refuse a model that changes its inputs in place.

    torch counts the changes of a tensor, but not those through `.data` or NumPy. With `compare`, the values are
    compared as well, and put back if they are others.
    """
    before = [
        (name, value, None if value.is_inference() else value._version, value.detach().clone() if compare else None)
        for name, value in named.items()
    ]
    yield
    for name, value, version, copy in before:
        same = version is None or value._version == version
        if copy is not None and not torch.equal(value, copy):
            value.data.copy_(copy)
            same = False
        if not same:
            raise CF2Error(
                "Expected the model not to modify its input",
                got=f"a forward that changes `{name}` in place",
                do=f"Work on a copy: {name} = {name}.clone() at the start of forward.",
            )
