"""Edges that a user adds and features that one changes: every edit is checked, and carried out with all others."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Any

import torch
from torch import Tensor
from torch_geometric.data import HeteroData

from cf2.core.edits import Editing
from cf2.core.graph import Changes, Instance
from cf2.errors import require
from cf2.report.unit_words import describe_change

Edit = tuple[Any, ...]  # ("add", u, v) or ("change", node, column, value)
Entry = tuple[int, int, float]  # a node, a column of its features, and the value that stands there
MOST = 50  # edits of one what-if
LARGEST = 1e9  # of any number that is typed into the page
SIZES = {"add": 3, "change": 4}  # how many values an edit of each sort is


def checked_edits(values: Any, graph: Any, directed: bool) -> list[Edit]:
    """Edits from the browser (None: none yet), each checked against the graph (a Data object), the same one once."""
    values = [] if values is None else values
    require(isinstance(values, list) and len(values) <= MOST, f"Expected at most {MOST} edits", got=_kind(values))
    require(
        not values or not isinstance(graph, HeteroData),
        "Expected a graph of one type, to add to it or change it by hand",
        got="one with types",
        do="Find the smallest edit below: it knows the types.",
    )
    made: dict[tuple[Any, ...], Edit] = {}
    for value in values:
        good = isinstance(value, list | tuple) and len(value) > 0 and isinstance(value[0], str)
        require(good and SIZES.get(value[0]) == len(value), "Expected an edit that adds or changes", got=_kind(value))
        edit = _checked_edge(value, graph, directed) if value[0] == "add" else _checked_change(value, graph)
        made[edit[:3]] = edit  # of two changes of one entry, the later one counts
    return list(made.values())


def _checked_edge(value: Sequence[Any], graph: Any, directed: bool) -> Edit:
    one, other = (checked_place("a node", end, int(graph.num_nodes)) for end in value[1:])
    require(one != other, "Expected two different nodes", got=f"{one} twice")
    tail, head = (one, other) if directed else sorted((one, other))
    there = ((graph.edge_index[0] == tail) & (graph.edge_index[1] == head)).any()
    there = there | (not directed and ((graph.edge_index[0] == head) & (graph.edge_index[1] == tail)).any())
    require(not bool(there), "Expected two nodes without an edge", got=f"{one} and {other}, which have one")
    return "add", tail, head


def _checked_change(value: Sequence[Any], graph: Any) -> Edit:
    require(
        isinstance(graph.x, Tensor) and graph.x.dim() == 2 and graph.x.is_floating_point(),
        "Expected features that are numbers, to change one",
        got=f"{getattr(graph.x, 'dtype', 'none')}",
    )
    node = checked_place("a node", value[1], int(graph.num_nodes))
    column = checked_place("a feature", value[2], graph.x.size(1))
    return "change", node, column, checked_number("the new value", value[3])


def checked_place(name: str, value: Any, count: int) -> int:
    """The number of a node or of a feature from the browser."""
    good = isinstance(value, int) and not isinstance(value, bool) and 0 <= value < count
    require(good, f"Expected {name} from 0 to {count - 1:,}", got="nothing" if value is None else repr(value)[:40])
    return int(value)


def checked_number(name: str, value: Any) -> float:
    """A number from the browser that a float can hold."""
    good = isinstance(value, int | float) and not isinstance(value, bool) and abs(value) <= LARGEST
    got = "nothing" if value is None else repr(value)[:40]
    require(good, f"Expected {name} to be a number of at most {LARGEST:,.0f}", got=got)
    return float(value)


def describe_edit(edit: Edit, graph: Any, atoms: Sequence[str] | None, directed: bool) -> str:
    """An edit in words: 'add 1–5', 'atom 3: C → N'."""
    if edit[0] == "add":
        return f"add {edit[1]}{'→' if directed else '–'}{edit[2]}"
    _, node, column, value = edit
    old, source = float(graph.x[node, column]), _element(graph.x[node], column, atoms)
    return describe_change(node, column, source, old, value, atoms)


def _element(row: Tensor, column: int, atoms: Sequence[str] | None) -> int:
    """The column of the element that an atom has, or -1 where features are no elements."""
    now = row[: len(atoms)].nonzero().flatten().tolist() if atoms and column < len(atoms) else []
    return int(now[0]) if now else -1


def entries(edits: Sequence[Edit], atoms: Sequence[str] | None) -> list[Entry]:
    """The feature entries that edits write; an atom that becomes another element is not the old one any more."""
    found: dict[tuple[int, int], float] = {}
    for _, node, column, value in (edit for edit in edits if edit[0] == "change"):
        for other in range(len(atoms)) if atoms and column < len(atoms) else ():
            found[node, other] = 0.0
        found[node, column] = value
    return [(node, column, value) for (node, column), value in found.items()]


@dataclass(frozen=True, eq=False)
class Trial(Editing):
    """Edits that are all made: pairs of nodes in `candidates`, and feature entries in `written`, one unit for all."""

    written: tuple[Entry, ...] = ()

    def prepared(self, near: Instance, around: Callable[[Tensor], Instance]) -> Instance:
        """The instance with the edits as candidates; a node that the model does not see has nothing to change."""
        made = super().prepared(near, around)
        place = {int(node): local for local, node in enumerate(made.node_ids.tolist())}
        seen = [(place[node], column, value) for node, column, value in self.written if node in place]
        if not seen:
            return made
        changes = Changes(
            place=torch.tensor([[node, column] for node, column, _ in seen]),
            value=torch.tensor([value for *_, value in seen]),
            unit=torch.zeros(len(seen), dtype=torch.long),
            ids=torch.tensor([[int(made.node_ids[seen[0][0]]), seen[0][1]]]),
            source=torch.tensor([-1]),
            choice=torch.tensor([0]),
        )
        return replace(made, changes=changes)


def _kind(value: object) -> str:
    return f"a {type(value).__name__}"
