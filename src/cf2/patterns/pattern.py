"""Patterns: small labelled graphs in a canonical form, so that equal ones are isomorphic ones."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from itertools import islice
from typing import Any

import numpy as np
from scipy.sparse import coo_matrix
from scipy.sparse.csgraph import connected_components

Label = str | None  # None: any label will do; "": there are no labels
Edge = tuple[int, int, Any]
LabelledEdge = tuple[tuple[int, int], Label]
LabelledEdges = list[LabelledEdge]
Neighbours = list[list[tuple[Any, int]]]  # per node: (label and direction of the edge, neighbour)

MAX_NUMBERINGS = 3_000  # numberings that are compared; only a large and very regular graph has more
SYMBOLS = (
    "H He Li Be B C N O F Ne Na Mg Al Si P S Cl Ar K Ca Sc Ti V Cr Mn Fe Co Ni Cu Zn Ga Ge As Se Br Kr Rb Sr Y Zr Nb "
    "Mo Tc Ru Rh Pd Ag Cd In Sn Sb Te I Xe Cs Ba La Ce Pr Nd Pm Sm Eu Gd Tb Dy Ho Er Tm Yb Lu Hf Ta W Re Os Ir Pt Au "
    "Hg Tl Pb Bi Po At Rn Fr Ra Ac Th Pa U"
)
ELEMENTS = {symbol: number for number, symbol in enumerate(SYMBOLS.split(), start=1)}
BONDS = {"single": ("–", "-"), "double": ("=", "="), "triple": ("≡", "#"), "aromatic": (":", ":")}  # text, SMARTS


def components(count: int, edges: Sequence[tuple[int, int]]) -> np.ndarray:
    """The number of the connected component of each of `count` nodes [n], whatever the direction of the edges.

    >>> components(4, [(2, 0)]).tolist()
    [0, 1, 0, 2]
    """
    tail, head = np.array(edges, np.int64).reshape(-1, 2).T
    joined = coo_matrix((np.ones(len(tail)), (tail, head)), shape=(count, count))
    return np.asarray(connected_components(joined, directed=False)[1])


def canonical_order(labels: Sequence[Any], edges: Sequence[Edge], directed: bool = False) -> list[int]:
    """The nodes in an order that is the same for every numbering of the same graph.

    Weisfeiler–Leman colours number the nodes that they tell apart. Of nodes that stay alike, each is tried as the first
    one, and the smallest description of the graph wins. That is exact, and fast because answers are small.

    >>> canonical_order(["C", "O", "C"], [(0, 1, ""), (1, 2, "")])[2]
    1
    """
    near = neighbours_by_kind(len(labels), edges, directed)

    def description(colours: list[int]) -> tuple[Any, ...]:
        order = sorted(range(len(colours)), key=colours.__getitem__)
        rows = [tuple(sorted((colours[other], kind) for kind, other in near[node])) for node in order]
        return tuple(labels[node] for node in order), tuple(rows)

    numberings = _numberings(_refined(_ranks(labels), near), near)
    best = min(islice(numberings, MAX_NUMBERINGS), key=description)
    return sorted(range(len(labels)), key=best.__getitem__)


def node_colours(labels: Sequence[Any], edges: Sequence[Edge], directed: bool = False) -> list[int]:
    """The colour that refinement gives each node; nodes that can be exchanged have the same."""
    return _refined(_ranks(labels), neighbours_by_kind(len(labels), edges, directed))


def neighbours_by_kind(count: int, edges: Iterable[Edge], directed: bool) -> Neighbours:
    """Per node of a graph the kinds of its edges, which are their label and direction, and its neighbours."""
    near: Neighbours = [[] for _ in range(count)]
    for tail, head, label in edges:
        near[tail].append(((label, int(directed)), head))
        near[head].append(((label, -int(directed)), tail))
    return near


def _numberings(colours: list[int], near: Neighbours) -> Iterator[list[int]]:
    """Colours that are all different: one list for every choice among nodes that refinement leaves alike."""
    count = Counter(colours)
    shared = [node for node, colour in enumerate(colours) if count[colour] > 1]
    if not shared:
        yield colours
        return
    first = min(colours[node] for node in shared)
    cell = [node for node in shared if colours[node] == first]
    # In a forest, nodes of one colour can be exchanged; elsewhere twins can, which have the same neighbours.
    forest = _is_forest(shared, near)
    different = {0 if forest else frozenset(near[node]): node for node in reversed(cell)}
    for node in sorted(different.values()):
        # The chosen node goes before those that it was like.
        alone = [2 * colour + (colour == first and other != node) for other, colour in enumerate(colours)]
        yield from _numberings(_refined(_ranks(alone), near), near)


def _is_forest(nodes: Sequence[int], near: Neighbours) -> bool:
    """Whether the graph among some nodes has no cycle."""
    place = {node: at for at, node in enumerate(nodes)}
    edges = [(place[a], place[b]) for a in nodes for _, b in near[a] if a < b and b in place]
    return len(edges) == len(nodes) - 1 - int(components(len(nodes), edges).max())


def _refined(colours: list[int], near: Neighbours) -> list[int]:
    count = 0
    while len(set(colours)) > count:
        count = len(set(colours))
        seen = [tuple(sorted((kind, colours[other]) for kind, other in around)) for around in near]
        colours = _ranks(list(zip(colours, seen)))
    return colours


def _ranks(values: Sequence[Any]) -> list[int]:
    rank = {value: number for number, value in enumerate(sorted(set(values)))}
    return [rank[value] for value in values]


@dataclass(frozen=True)
class Pattern:
    """A connected labelled graph in canonical order; make one with `Pattern.make`.

    Attributes
    ----------
    labels : tuple of str or None, one per node
        None stands for any label, "" for nodes without labels.
    marks : tuple of int, one per node
        1 for the node that is explained (of a pair: 1 and 2), 0 for all others.
    edges : tuple of (int, int)
        Each edge once; from tail to head where edges are directed.
    edge_labels : tuple of str or None, one per edge
    directed : bool
    """

    labels: tuple[Label, ...]
    marks: tuple[int, ...]
    edges: tuple[tuple[int, int], ...]
    edge_labels: tuple[Label, ...]
    directed: bool = False

    @staticmethod
    def make(
        labels: Sequence[Label],
        edges: Sequence[tuple[int, int]],
        edge_labels: Sequence[Label] | None = None,
        marks: Sequence[int] | None = None,
        *,
        directed: bool = False,
    ) -> Pattern:
        """The pattern of a labelled graph, whatever the order of its nodes.

        Parameters
        ----------
        labels : sequence of str or None
            One per node.
        edges : sequence of (int, int)
            Each edge once.
        edge_labels : sequence of str or None, optional
            One per edge; none are labelled if not given.
        marks : sequence of int, optional
            One per node; none is marked if not given.
        directed : bool
            Whether an edge has a direction.
        """
        names = [""] * len(edges) if edge_labels is None else list(edge_labels)
        roles = [0] * len(labels) if marks is None else list(marks)
        order = canonical_order(
            [(role, *_sortable(label)) for role, label in zip(roles, labels)],
            [(a, b, _sortable(name)) for (a, b), name in zip(edges, names)],
            directed,
        )
        place = {node: new for new, node in enumerate(order)}
        moved = [(place[a], place[b]) for a, b in edges]
        rows = sorted(
            ((pair if directed else (min(pair), max(pair))), _sortable(name), name) for pair, name in zip(moved, names)
        )
        return Pattern(
            tuple(labels[node] for node in order),
            tuple(roles[node] for node in order),
            tuple(pair for pair, _, _ in rows),
            tuple(name for _, _, name in rows),
            directed,
        )

    @property
    def size(self) -> int:
        """The number of edges."""
        return len(self.edges)

    @cached_property
    def neighbours(self) -> tuple[tuple[tuple[int, int], ...], ...]:
        """Per node the pairs (edge, other node), in the order of the edges."""
        found: list[list[tuple[int, int]]] = [[] for _ in self.labels]
        for number, (a, b) in enumerate(self.edges):
            found[a].append((number, b))
            found[b].append((number, a))
        return tuple(map(tuple, found))

    def generalisations(self) -> Iterator[tuple[str, int, Pattern]]:
        """Every pattern that is one step more general: what is done, to which edge or node, and the pattern.

        ``drop`` leaves out an edge, with the node that it alone held; ``any`` lets a node or ``any edge`` an edge have
        any label. What is explained stays, and so does the pattern's being one piece.
        """
        for number in range(len(self.edges)):
            smaller = self._without(number)
            if smaller is not None:
                yield "drop", number, smaller
        for kind, labels in (("any", self.labels), ("any edge", self.edge_labels)):
            for place in (place for place, label in enumerate(labels) if label):
                general = (*labels[:place], None, *labels[place + 1 :])
                both = (general, self.edge_labels) if kind == "any" else (self.labels, general)
                yield kind, place, Pattern.make(both[0], self.edges, both[1], self.marks, directed=self.directed)

    def _without(self, gone: int) -> Pattern | None:
        """The pattern without an edge, if one piece with an edge is left and nothing marked is lost."""
        edges = [edge for number, edge in enumerate(zip(self.edges, self.edge_labels)) if number != gone]
        nodes, marks = dict(enumerate(self.labels)), dict(enumerate(self.marks))
        pieces = connected_patterns(nodes, edges, marks, directed=self.directed)
        kept = [piece for piece in pieces if piece.edges]
        lost = [piece for piece in pieces if not piece.edges]
        return kept[0] if len(kept) == 1 and not any(any(piece.marks) for piece in lost) else None

    @property
    def text(self) -> str:
        """The pattern in one line, as chemists write molecules; • is a node without a label, * one of any label."""
        return self._written(self._name, self._bond)

    @property
    def smarts(self) -> str | None:
        """A SMARTS query that finds the pattern in molecules; None where a label is no element."""
        labels = {*self.labels} - {None}
        if self.directed or any(self.marks) or not labels or not labels <= ELEMENTS.keys():
            return None
        return self._written(
            lambda node: "*" if (label := self.labels[node]) is None else f"[#{ELEMENTS[label]}]",
            lambda edge, way: BONDS.get(self.edge_labels[edge] or "", ("", "~"))[1],
        )

    def _name(self, node: int) -> str:
        label = self.labels[node]
        name = "*" if label is None else label or "•"
        return f"⟨{name}⟩" if self.marks[node] == 1 else f"⟨{name}⟩{self.marks[node]}" if self.marks[node] else name

    def _bond(self, edge: int, way: bool) -> str:
        name = self.edge_labels[edge]
        inner = f"[{name}]" if name else "[*]" if name is None else ""
        if self.directed:
            return f"→{inner}" if way else f"←{inner}"
        plain = f"–{inner}–" if inner else "–"
        return BONDS[name][0] if name in BONDS else plain

    def _written(self, atom: Callable[[int], str], bond: Callable[[int, bool], str]) -> str:
        """Depth first, the smallest branch first, rings closed by numbers."""
        tree: list[list[tuple[int, int]]] = [[] for _ in self.labels]  # per node: edge, child
        rings: list[list[tuple[int, int]]] = [[] for _ in self.labels]  # per node: edge (-1 at its end), number
        weight = [1] * len(self.labels)
        seen, used = set(), set()

        def visit(node: int) -> None:
            seen.add(node)
            for edge, other in self.neighbours[node]:
                if edge in used:
                    continue
                used.add(edge)
                if other in seen:
                    number = len(used) - len(seen) + 1  # edges beyond those of a tree
                    rings[node].append((edge, number))
                    rings[other].append((-1, number))
                else:
                    tree[node].append((edge, other))
                    visit(other)
                    weight[node] += weight[other]

        def written(node: int) -> str:
            text = atom(node)
            for edge, number in rings[node]:
                mark = str(number) if number < 10 else f"%{number}"
                text += mark if edge < 0 else bond(edge, self.edges[edge][0] == node) + mark
            branches = sorted(tree[node], key=lambda pair: (weight[pair[1]], pair[0]))
            parts = [bond(edge, self.edges[edge][0] == node) + written(other) for edge, other in branches]
            return text + "".join(f"({part})" for part in parts[:-1]) + "".join(parts[-1:])

        first = self.marks.index(1) if 1 in self.marks else self._busiest()
        visit(first)
        return written(first)

    def _busiest(self) -> int:
        """The node of the rarest label that has most edges: where a reader would begin."""
        rank = [(self.labels.count(label), -len(near)) for label, near in zip(self.labels, self.neighbours)]
        return rank.index(min(rank))

    def to_dict(self) -> dict[str, Any]:
        """Plain lists and strings, ready for JSON."""
        return {
            "nodes": list(self.labels),
            "targets": [self.marks.index(role) for role in (1, 2) if role in self.marks],
            "edges": [list(pair) for pair in self.edges],
            "edge_labels": list(self.edge_labels),
            "directed": self.directed,
            "text": self.text,
            "smarts": self.smarts,
        }

    @staticmethod
    def from_dict(given: Mapping[str, Any]) -> Pattern:
        """The pattern that `to_dict` gave."""
        labels = tuple(None if label is None else str(label) for label in given["nodes"])
        marks = [0] * len(labels)
        for role, node in enumerate(given["targets"], start=1):
            marks[node] = role
        edges = tuple((int(a), int(b)) for a, b in given["edges"])
        if any(not 0 <= node < len(labels) for pair in edges for node in pair):
            raise ValueError("an edge between nodes that are not there")
        names = tuple(None if name is None else str(name) for name in given["edge_labels"])
        return Pattern(labels, tuple(marks), edges, names, bool(given["directed"]))


def connected_parts(nodes: Sequence[int], edges: Collection[LabelledEdge]) -> Iterator[tuple[list[int], LabelledEdges]]:
    """The nodes of every connected part of a graph, and its edges, whose ends are positions among these."""
    place = {node: at for at, node in enumerate(nodes)}
    part_of = components(len(nodes), [(place[a], place[b]) for (a, b), _ in edges])
    for number in range(part_of.max(initial=-1) + 1):
        own = [node for node, part in zip(nodes, part_of) if part == number]
        inside = {node: at for at, node in enumerate(own)}
        yield own, [((inside[a], inside[b]), label) for (a, b), label in edges if a in inside]


def connected_patterns(
    labels: Mapping[int, Label],
    edges: Collection[LabelledEdge],
    marks: Mapping[int, int] | None = None,
    *,
    directed: bool = False,
) -> list[Pattern]:
    """The connected parts of a graph as patterns; nodes are any numbers."""
    pieces = []
    for nodes, own in connected_parts(list(labels), edges):
        own_labels, roles = [labels[node] for node in nodes], [(marks or {}).get(node, 0) for node in nodes]
        pieces.append(Pattern.make(own_labels, [e for e, _ in own], [n for _, n in own], roles, directed=directed))
    return pieces


def _sortable(label: Label) -> tuple[bool, str]:
    return label is None, label or ""
