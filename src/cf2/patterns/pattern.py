"""Labelled graphs, and patterns: small ones in a canonical form, so that equal patterns are isomorphic graphs."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from itertools import islice
from typing import Any

import networkx as nx

Label = str | None  # None: any label will do; "": there are no labels
Neighbours = list[list[tuple[Any, int]]]  # per node: (label and direction of the edge, neighbour)

MAX_NUMBERINGS = 3_000  # numberings that are compared; only a large and very regular graph has more
SYMBOLS = (
    "H He Li Be B C N O F Ne Na Mg Al Si P S Cl Ar K Ca Sc Ti V Cr Mn Fe Co Ni Cu Zn Ga Ge As Se Br Kr Rb Sr Y Zr Nb "
    "Mo Tc Ru Rh Pd Ag Cd In Sn Sb Te I Xe Cs Ba La Ce Pr Nd Pm Sm Eu Gd Tb Dy Ho Er Tm Yb Lu Hf Ta W Re Os Ir Pt Au "
    "Hg Tl Pb Bi Po At Rn Fr Ra Ac Th Pa U"
)
ELEMENTS = {symbol: number for number, symbol in enumerate(SYMBOLS.split(), start=1)}
BONDS = {"single": ("–", "-"), "double": ("=", "="), "triple": ("≡", "#"), "aromatic": (":", ":")}  # text, SMARTS
BOND_ORDERS = {"single": 1.0, "aromatic": 1.5, "double": 2.0, "triple": 3.0}
AND = ";"  # between the words of a label, as in SMARTS
IN_RING, IN_CHAIN = "R", "R0"
PROPERTIES = {IN_RING, IN_CHAIN, *(f"H{count}" for count in range(5))}  # words that an atom has beside its element


def covers(general: Label, special: str) -> bool:
    """Whether a node of the one label may stand for a node of the other: it has all of its words.

    >>> covers("C;H2", "C;H2;R"), covers("C;H2", "C"), covers(None, "")
    (True, False, True)
    """
    return general is None or set(general.split(AND)) <= set(special.split(AND))


def element(label: Label) -> str:
    """The element of an atom's label, "" of any other label."""
    first = (label or "").split(AND)[0]
    return first if first in ELEMENTS else ""


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
    whole = nx.Graph((node, other) for node, around in enumerate(near) for _, other in around)
    whole.add_nodes_from(shared)
    forest = nx.is_forest(whole.subgraph(shared))
    different = {0 if forest else frozenset(near[node]): node for node in reversed(cell)}
    for node in sorted(different.values()):
        # The chosen node goes before those that it was like.
        alone = [2 * colour + (colour == first and other != node) for other, colour in enumerate(colours)]
        yield from _numberings(_refined(_ranks(alone), near), near)


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
    """A labelled graph; `Pattern.make` puts it in canonical order.

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
        """The pattern of a labelled graph, whatever the order of its nodes; the attributes are those of the class."""
        names = [""] * len(edges) if edge_labels is None else edge_labels
        roles = [0] * len(labels) if marks is None else marks
        return Pattern(tuple(labels), tuple(roles), tuple(edges), tuple(names), directed).canonical()

    def canonical(self) -> Pattern:
        """The same graph in an order that is the same for every numbering of it.

        Weisfeiler–Leman colours number the nodes that they tell apart. Of nodes that stay alike, each is tried as the
        first one, and the smallest description of the graph wins. That is exact, and fast because answers are small.
        """
        labels, near = self._sortable_labels, self.neighbours_by_kind

        def description(colours: list[int]) -> tuple[Any, ...]:
            order = sorted(range(len(colours)), key=colours.__getitem__)
            rows = [tuple(sorted((colours[other], kind) for kind, other in near[node])) for node in order]
            return tuple(labels[node] for node in order), tuple(rows)

        best = min(islice(_numberings(self.colours, near), MAX_NUMBERINGS), key=description)
        moved = [(best[a], best[b]) for a, b in self.edges]
        if not self.directed:
            moved = [(min(pair), max(pair)) for pair in moved]
        rows = sorted(zip(moved, map(_sortable, self.edge_labels), range(self.size)))
        order = sorted(range(len(best)), key=best.__getitem__)
        return Pattern(
            tuple(self.labels[node] for node in order),
            tuple(self.marks[node] for node in order),
            tuple(pair for pair, _, _ in rows),
            tuple(self.edge_labels[number] for _, _, number in rows),
            self.directed,
        )

    @property
    def _sortable_labels(self) -> list[tuple[int, tuple[bool, str]]]:
        return [(mark, _sortable(label)) for mark, label in zip(self.marks, self.labels)]

    @property
    def neighbours_by_kind(self) -> Neighbours:
        """Per node the kinds of its edges, which are their label and direction, and its neighbours."""
        near: Neighbours = [[] for _ in self.labels]
        for (tail, head), label in zip(self.edges, map(_sortable, self.edge_labels)):
            near[tail].append(((label, int(self.directed)), head))
            near[head].append(((label, -int(self.directed)), tail))
        return near

    @property
    def colours(self) -> list[int]:
        """The colour that refinement gives each node; nodes that can be exchanged have the same."""
        return _refined(_ranks(self._sortable_labels), self.neighbours_by_kind)

    def pieces(self, edges: Iterable[int] | None = None) -> list[tuple[list[int], Pattern]]:
        """The connected pieces, or those that some edges make: the nodes of each, and the graph that they are."""
        numbers = list(range(self.size) if edges is None else edges)
        graph = nx.Graph(self.edges[number] for number in numbers)
        graph.add_nodes_from(range(len(self.labels)) if edges is None else ())
        found = []
        for nodes in map(sorted, sorted(nx.connected_components(graph), key=min)):
            place = {node: position for position, node in enumerate(nodes)}
            own = [number for number in numbers if self.edges[number][0] in place]
            piece = Pattern(
                tuple(self.labels[node] for node in nodes),
                tuple(self.marks[node] for node in nodes),
                tuple((place[a], place[b]) for a, b in map(self.edges.__getitem__, own)),
                tuple(self.edge_labels[number] for number in own),
                self.directed,
            )
            found.append((nodes, piece))
        return found

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

    def generalisations(self) -> Iterator[Pattern]:
        """Every pattern that is one step more general.

        A step leaves out an edge, with the node that it alone held, or a word of the label of a node or an edge; a
        label without words is any. What is explained stays, and so does the pattern's being one piece.
        """
        for gone in range(self.size):
            pieces = [piece for _, piece in self.pieces(number for number in range(self.size) if number != gone)]
            if len(pieces) == 1 and sum(pieces[0].marks) == sum(self.marks):
                yield pieces[0].canonical()
        for labels in _one_word_less(self.labels):
            yield self.relabelled(labels, self.edge_labels)
        for labels in _one_word_less(self.edge_labels):
            yield self.relabelled(self.labels, labels)

    def relabelled(self, labels: Sequence[Label], edge_labels: Sequence[Label]) -> Pattern:
        """The pattern with other labels."""
        return replace(self, labels=tuple(labels), edge_labels=tuple(edge_labels)).canonical()

    @property
    def properties(self) -> int:
        """How much is said of atoms beside their elements."""
        return sum(len(_words(label or "") & PROPERTIES) for label in self.labels)

    @property
    def elements_only(self) -> Pattern:
        """The pattern without what labels say of atoms beside their elements."""
        return self.relabelled([element(label) or label for label in self.labels], self.edge_labels)

    @property
    def text(self) -> str:
        """The pattern in one line, as chemists write molecules; • is a node without a label, * one of any label."""
        return self._written(self._name, self._bond)

    @property
    def smarts(self) -> str | None:
        """A SMARTS query that finds the pattern in molecules; None where a label is no element."""
        known = all(label is None or _words(label) <= PROPERTIES or element(label) for label in self.labels)
        if self.directed or any(self.marks) or not any(map(element, self.labels)) or not known:
            return None
        return self._written(
            lambda node: _atom_smarts(self.labels[node]),
            lambda edge, way: BONDS.get(self.edge_labels[edge] or "", ("", "~"))[1],
        )

    def _name(self, node: int) -> str:
        label = self.labels[node]
        name = "*" if label is None else label or "•"
        if _words(name) & PROPERTIES:
            name = f"[{name.replace(AND + 'H', 'H')}]"  # as chemists write it: [CH2;R]
        return f"⟨{name}⟩" if self.marks[node] == 1 else f"⟨{name}⟩{self.marks[node]}" if self.marks[node] else name

    def _bond(self, edge: int, way: bool) -> str:
        name = self.edge_labels[edge]
        inner = f"[{name}]" if name else "[*]" if name is None else ""
        if self.directed:
            return f"→{inner}" if way else f"←{inner}"
        if name is None or name in BONDS:
            return "~" if name is None else BONDS[name][0]
        return f"–{inner}–" if inner else "–"

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


def _sortable(label: Label) -> tuple[bool, str]:
    return label is None, label or ""


def _words(label: str) -> set[str]:
    return set(label.split(AND))


def _one_word_less(labels: Sequence[Label]) -> Iterator[tuple[Label, ...]]:
    for place, label in enumerate(labels):
        for word in label.split(AND) if label else ():
            rest = AND.join(other for other in str(label).split(AND) if other != word)
            yield (*labels[:place], rest or None, *labels[place + 1 :])


def _atom_smarts(label: Label) -> str:
    if label is None:
        return "*"
    return f"[{AND.join(f'#{ELEMENTS[word]}' if word in ELEMENTS else word for word in label.split(AND))}]"
