"""A numbering of a small labelled graph that does not depend on how its nodes were numbered.

Colours are refined as Weisfeiler and Leman do: a node's colour becomes its own and those of its neighbours. Where that
leaves nodes apart, they are numbered; where some stay alike, each of them is tried as the first, and the smallest
description wins. That is exact, and fast because answers are small.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any

LEAVES = 3_000  # numberings that are compared at most; only a large and very regular graph has more

Edge = tuple[int, int, Any]
Around = list[list[tuple[Any, int]]]  # per node: (label and direction of the edge, neighbour)


def canonical_order(labels: Sequence[Any], edges: Sequence[Edge], directed: bool = False) -> list[int]:
    """The nodes in an order that is the same for every numbering of the same graph.

    Parameters
    ----------
    labels : sequence
        One per node; they must be comparable.
    edges : sequence of (tail, head, label)
    directed : bool

    Returns
    -------
    list of int
        The node that comes first, the one that comes second, and so on.

    >>> canonical_order(["C", "O", "C"], [(0, 1, ""), (1, 2, "")])[2]
    1
    """
    around = _around(len(labels), edges, directed)
    best: list[Any] = [None, None, 0]  # the smallest description, its colours, how many were compared
    _search(_refined(_ranks(labels), around), around, labels, best)
    colours = best[1]
    return sorted(range(len(labels)), key=lambda node: colours[node])


def colours_of(labels: Sequence[Any], edges: Sequence[Edge], directed: bool = False) -> list[int]:
    """The colour that refinement gives each node; nodes that can be exchanged have the same."""
    return _refined(_ranks(labels), _around(len(labels), edges, directed))


def _around(count: int, edges: Sequence[Edge], directed: bool) -> Around:
    around: Around = [[] for _ in range(count)]
    for tail, head, label in edges:
        around[tail].append(((label, int(directed)), head))
        around[head].append(((label, -int(directed)), tail))
    return around


def _search(colours: list[int], around: Around, labels: Sequence[Any], best: list[Any]) -> None:
    cell = _first_cell(colours)
    if not cell:
        best[2] += 1
        described = _description(colours, around, labels)
        if best[0] is None or described < best[0]:
            best[:2] = described, colours
        return
    for node in _different(cell, colours, around):
        if best[2] >= LEAVES:
            return
        # The node goes before those that it was like.
        alone = [2 * colour + (colour == colours[node] and other != node) for other, colour in enumerate(colours)]
        _search(_refined(_ranks(alone), around), around, labels, best)


def _different(cell: list[int], colours: list[int], around: Around) -> list[int]:
    """Which nodes of a cell must be tried: one of those that are known to be interchangeable."""
    if _is_forest(colours, around):
        return cell[:1]  # in a forest, nodes of one colour can be exchanged
    one_of: dict[Any, int] = {}
    for node in cell:
        one_of.setdefault(frozenset(around[node]), node)  # twins have the same neighbours
    return list(one_of.values())


def _is_forest(colours: list[int], around: Around) -> bool:
    """Whether the graph of the nodes that share their colour with another has no cycle."""
    count = _counts(colours)
    shared = [node for node, colour in enumerate(colours) if count[colour] > 1]
    inside, root = set(shared), {node: node for node in shared}

    def find(node: int) -> int:
        while root[node] != node:
            node = root[node]
        return node

    for node in shared:
        for _, other in around[node]:
            if other in inside and node < other:
                a, b = find(node), find(other)
                if a == b:
                    return False
                root[a] = b
    return True


def _description(colours: list[int], around: Around, labels: Sequence[Any]) -> tuple[Any, ...]:
    order = sorted(range(len(colours)), key=lambda node: colours[node])
    rows = [tuple(sorted((colours[other], kind) for kind, other in around[node])) for node in order]
    return tuple(labels[node] for node in order), tuple(rows)


def _first_cell(colours: list[int]) -> list[int]:
    """The nodes of the first colour that several have."""
    count = _counts(colours)
    shared = [colour for colour, times in count.items() if times > 1]
    return [node for node, colour in enumerate(colours) if colour == min(shared)] if shared else []


def _counts(colours: Iterable[int]) -> dict[int, int]:
    count: dict[int, int] = {}
    for colour in colours:
        count[colour] = count.get(colour, 0) + 1
    return count


def _refined(colours: list[int], around: Around) -> list[int]:
    known = len(set(colours))
    while True:
        seen = [
            (colours[node], tuple(sorted((kind, colours[other]) for kind, other in near)))
            for node, near in enumerate(around)
        ]
        colours = _ranks(seen)
        if len(set(colours)) == known:
            return colours
        known = len(set(colours))


def _ranks(values: Sequence[Any]) -> list[int]:
    place = {value: rank for rank, value in enumerate(sorted(set(values)))}
    return [place[value] for value in values]
