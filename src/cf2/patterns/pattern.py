"""A numbering of a small labelled graph that does not depend on how its nodes were numbered.

Colours are refined as Weisfeiler and Leman do: a node's colour becomes its own and those of its neighbours. Where that
leaves nodes apart, they are numbered; where some stay alike, each of them is tried as the first, and the smallest
description wins. That is exact, and fast because answers are small.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any

# -- canonical -------------------------------------------------------------------------------------------


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


# -- pattern ---------------------------------------------------------------------------------------------


Label = str | None  # None: any label will do; "": there are no labels
SYMBOLS = (
    "H He Li Be B C N O F Ne Na Mg Al Si P S Cl Ar K Ca Sc Ti V Cr Mn Fe Co Ni Cu Zn Ga Ge As Se Br Kr Rb Sr Y Zr Nb "
    "Mo Tc Ru Rh Pd Ag Cd In Sn Sb Te I Xe Cs Ba La Ce Pr Nd Pm Sm Eu Gd Tb Dy Ho Er Tm Yb Lu Hf Ta W Re Os Ir Pt Au "
    "Hg Tl Pb Bi Po At Rn Fr Ra Ac Th Pa U"
)
BONDS = {"single": ("–", "-"), "double": ("=", "="), "triple": ("≡", "#"), "aromatic": (":", ":")}  # text, SMARTS
ELEMENTS = {symbol: number for number, symbol in enumerate(SYMBOLS.split(), start=1)}


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
        for node, label in enumerate(self.labels):
            if label:
                labels = [None if other == node else name for other, name in enumerate(self.labels)]
                yield "any", node, self._with(labels, self.edge_labels)
        for number, label in enumerate(self.edge_labels):
            if label:
                names = [None if other == number else name for other, name in enumerate(self.edge_labels)]
                yield "any edge", number, self._with(self.labels, names)

    def _with(self, labels: Sequence[Label], edge_labels: Sequence[Label]) -> Pattern:
        return Pattern.make(labels, self.edges, edge_labels, self.marks, directed=self.directed)

    def _without(self, gone: int) -> Pattern | None:
        """The pattern without an edge, if one piece with an edge is left and nothing marked is lost."""
        if len(self.edges) == 1:
            return None
        seen, queue = {self.edges[gone][0]}, [self.edges[gone][0]]
        while queue:
            near = [node for number, node in self.neighbours[queue.pop()] if number != gone and node not in seen]
            seen.update(near)
            queue += near
        if len(seen) == 1 or len(seen) == len(self.labels) - 1:
            lost = self.edges[gone][0] if len(seen) == 1 else self.edges[gone][1]
        elif len(seen) == len(self.labels):
            lost = -1
        else:
            return None
        if lost >= 0 and self.marks[lost]:
            return None
        stay = [node for node in range(len(self.labels)) if node != lost]
        place = {node: new for new, node in enumerate(stay)}
        rows = [number for number in range(len(self.edges)) if number != gone]
        return Pattern.make(
            [self.labels[node] for node in stay],
            [(place[self.edges[row][0]], place[self.edges[row][1]]) for row in rows],
            [self.edge_labels[row] for row in rows],
            [self.marks[node] for node in stay],
            directed=self.directed,
        )

    # -- in words -------------------------------------------------------------------------------------------

    @property
    def text(self) -> str:
        """The pattern in one line, as chemists write molecules; • is a node without a label, * one of any label."""
        return self._written(self._name, self._bond)

    @property
    def smarts(self) -> str | None:
        """A SMARTS query that finds the pattern in molecules; None where a label is no element."""
        known = [label for label in self.labels if label is not None]
        if self.directed or any(self.marks) or not known or any(label not in ELEMENTS for label in known):
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
        """Depth first from the first node, the shortest branch first, rings closed by numbers."""
        tree: dict[int, list[tuple[int, int]]] = {node: [] for node in range(len(self.labels))}
        closing: dict[int, list[tuple[int, int]]] = {node: [] for node in range(len(self.labels))}
        seen, used, numbers = set(), set(), 0
        first = self.marks.index(1) if 1 in self.marks else _busiest(self)

        def visit(node: int) -> None:
            nonlocal numbers
            seen.add(node)
            for edge, other in self.neighbours[node]:
                if edge in used:
                    continue
                used.add(edge)
                if other in seen:
                    numbers += 1
                    closing[node].append((edge, numbers))
                    closing[other].append((-1, numbers))
                else:
                    tree[node].append((edge, other))
                    visit(other)

        visit(first)

        def weight(node: int) -> int:
            return 1 + sum(weight(other) for _, other in tree[node])

        def written(node: int) -> str:
            text = atom(node)
            for edge, number in closing[node]:
                mark = str(number) if number < 10 else f"%{number}"
                text += mark if edge < 0 else bond(edge, self.edges[edge][0] == node) + mark
            branches = sorted(tree[node], key=lambda pair: (weight(pair[1]), pair[0]))
            parts = [bond(edge, self.edges[edge][0] == node) + written(other) for edge, other in branches]
            return text + "".join(f"({part})" for part in parts[:-1]) + "".join(parts[-1:])

        return written(first)

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


def _busiest(pattern: Pattern) -> int:
    """The node with most edges that is rarest by its label: where a reader would begin."""
    count = {label: pattern.labels.count(label) for label in pattern.labels}
    rank = [(count[label], -len(near)) for label, near in zip(pattern.labels, pattern.neighbours)]
    return rank.index(min(rank))


def _sortable(label: Label) -> tuple[bool, str]:
    return label is None, label or ""
