"""What an explanation claims of itself, against plain enumeration.

Every combination of units, edits and constraints is asked of random tiny models. The graphs are rebuilt here by hand
from the unit table, and all sets of at most nine units are tried: nothing of the package decides what is true.
"""

from __future__ import annotations

import random
from collections import Counter
from itertools import combinations
from typing import Any

import pytest
import torch
from torch import Tensor
from torch_geometric.data import Data

import cf2
from toys import GraphNet, NodeNet, chosen_of, pieces, random_graph

MAX_UNITS = 9
EDITS = [("remove",), ("add",), ("change",), ("remove", "add"), ("remove", "add", "change")]
UNITS = ["edges", "nodes", "features", ("edges", "features")]
Rows = frozenset[int]


class Case:
    """A request drawn from a seed, and what is true of every set of its units."""

    def __init__(self, seed: int, **given: Any) -> None:
        draw = random.Random(seed)
        asked: dict[str, Any] = {
            "question": draw.choice(["why", "factual", "counterfactual", "counterfactual"]),
            "units": draw.choice(UNITS),
            "edits": draw.choice(EDITS),
            "connected": draw.random() < 0.3,
            "alternatives": draw.choice([1, 2, 4, 50]),
            "confidence": draw.choice([0.0, 0.0, 0.2, 0.6]),
            "effort": draw.choice(["quick", "standard", "standard", "thorough", "exact"]),
            "proof": draw.choice([None, None, 0, 8, 40]),
        } | given
        self.node = draw.random() < 0.5
        small = asked["units"] != "edges" or "remove" not in asked["edits"]
        binary = draw.random() < 0.5
        self.graphs = []  # of several sizes, so that instances of several widths are packed together
        for number in range(1 if self.node else 3):
            nodes, edges = draw.choice([3, 4]) if small else 6, draw.choice([2, 3, 4, 5, 6])
            data = random_graph(nodes, edges, features=2, seed=seed + number)
            data.x = (data.x > 0).float() if binary else data.x
            self.graphs.append(data)
        layer = draw.choice(["sum", "gin", "sage"])
        self.model = NodeNet(layer, 2, 2, seed, 2) if self.node else GraphNet(layer, 2, 2, seed)
        if asked["question"] == "counterfactual":
            asked["candidates"] = "near"
        else:
            asked["edits"] = ("remove",)
        names = {asked["units"]} if isinstance(asked["units"], str) else set(asked["units"])
        if "change" in asked["edits"] or ("features" in names and "remove" in asked["edits"]):
            asked["connected"] = False
        self.asked, self._said = asked, dict[Any, Tensor]()

    def data(self, key: int) -> Data:
        return self.graphs[0 if self.node else key]

    def edges(self, key: int) -> list[Any]:
        return [tuple(pair) for pair in self.data(key).edge_index.t().tolist()]

    def explained(self) -> dict[Any, list[cf2.Explanation]]:
        """The answers by key, the first one first."""
        what = {"nodes": [0, 1, 2]} if self.node else {}
        by_key: dict[Any, list[cf2.Explanation]] = {}
        for e in cf2.explain(self.model, self.graphs[0] if self.node else self.graphs, **what, **self.asked):
            by_key.setdefault(e.key, []).append(e)
        return by_key

    # -- what is true --------------------------------------------------------------------------------------------

    def graph(self, e: cf2.Explanation, chosen: Rows, only: bool) -> tuple[Tensor, list[Any]]:
        """Features and edges with the edits of a set carried out, or with only its units left."""
        x, columns = self.data(e.key).x.clone(), self.edges(e.key)
        removed = []
        for row, (kind, ids) in enumerate(zip(e.units.kind.tolist(), e.units.ids.tolist())):
            name, inside = e.units.names[kind], row in chosen
            if name == "added_edges":
                columns += [(ids[0], ids[1]), (ids[1], ids[0])] if inside and not only else []
            elif name == "changes":
                source, _, new = e.units.values[row].tolist()
                if inside and not only:
                    x[ids[0], ids[1]] = new
                    if source >= 0:
                        x[ids[0], int(source)] = 0
            elif inside != only:
                if name == "edges":
                    columns = [p for p in columns if sorted(p) != sorted(ids)]
                elif name == "nodes":
                    removed.append(ids[0])
                    x[ids[0]] = 0
                else:
                    x[ids[0], ids[1]] = 0
        columns = [pair for pair in columns if not {*pair} & {*removed}]
        if not removed or self.node:  # a removed node does not reach the target; a pool would count it
            return x, columns
        left = [node for node in range(len(x)) if node not in removed]
        return x[left], [(left.index(a), left.index(b)) for a, b in columns]

    def says(self, key: int, x: Tensor, columns: list[Any]) -> Tensor:
        """The probabilities of the classes."""
        look = (key, len(x), tuple(x.flatten().tolist()), tuple(columns))
        if look not in self._said:
            edge_index = torch.tensor(columns, dtype=torch.long).reshape(-1, 2).t()
            with torch.no_grad():
                if self.node:
                    out = self.model(x, edge_index)[key]
                else:
                    out = self.model(x, edge_index, batch=torch.zeros(len(x), dtype=torch.long))[0]
            self._said[look] = out.softmax(0)
        return self._said[look]

    def tests(self, e: cf2.Explanation, chosen: Rows, names: str, confidence: float) -> bool:
        """Whether a set passes tests, `only` and `without`, by more than a margin."""
        for name in names.split():
            x, columns = self.graph(e, chosen, name == "only")
            if not len(x):
                return False  # of no nodes the model says nothing
            said = self.says(e.key, x, columns)
            own = float(said[e.prediction] - said[1 - e.prediction])
            same = int(said.argmax()) == e.prediction
            if same != (name == "only") or (confidence and (own if name == "only" else -own) <= confidence):
                return False
        return True

    def passes(self, e: cf2.Explanation, chosen: Rows) -> bool:
        """Whether a set is an answer: by its tests, and under all that was asked."""
        asked = self.asked
        names = {"why": "only without", "factual": "only", "counterfactual": "without"}[asked["question"]]
        if not self.tests(e, chosen, names, asked["confidence"]) or self.changes_twice(e, chosen):
            return False
        return not asked["connected"] or self.pieces(e, chosen) <= 1

    def changes_twice(self, e: cf2.Explanation, chosen: Rows) -> bool:
        """Two changes of one value, or of one one-hot feature."""
        taken: list[Any] = []
        for row in chosen:
            if e.units.names[e.units.kind[row]] == "changes":
                node, column = e.units.ids[row].tolist()
                source = int(e.units.values[row, 0])
                taken.append((node, "one-hot", source) if source >= 0 else (node, column))
        return len(taken) != len(set(taken))

    def pieces(self, e: cf2.Explanation, chosen: Rows) -> int:
        """Connected pieces of what is chosen, the target with it; nodes are joined by edges between them."""
        parts: list[set[int]] = [{e.key}] if self.node else []
        nodes = {int(e.units.ids[row, 0]) for row in chosen if e.units.names[e.units.kind[row]] == "nodes"}
        nodes |= {e.key} if self.node and "nodes" in e.units.names else set()
        for row in chosen:
            name, ids = e.units.names[e.units.kind[row]], e.units.ids[row].tolist()
            parts.append({ids[0]} if name == "nodes" else set(ids))
        parts += [set(p) for p in self.edges(e.key) if "nodes" in e.units.names and set(p) <= nodes]
        return pieces(parts)


def violations(case: Case, found: list[cf2.Explanation]) -> list[str]:
    """Every claim that enumeration contradicts."""
    first, wrong = found[0], []
    if first.status in ("empty", "not predicted", "refused") or first.num_units > MAX_UNITS:
        return []
    every = [frozenset(s) for n in range(first.num_units + 1) for s in combinations(range(first.num_units), n)]
    good = [chosen for chosen in every if case.passes(first, chosen)]
    smallest = min(map(len, good), default=None)
    for e in found:
        chosen = chosen_of(e)
        smaller = any(chosen - {row} in good for row in chosen)
        claims = {
            "found": e.status != "found" or chosen in good,
            "an alternative": not e.rank or e.status == "found",
            "impossible": e.status != "impossible" or not good,
            "minimal": e.minimal is None or e.minimal != smaller,
            "optimal": not e.optimal or e.size == smallest,
            "lower bound": e.lower_bound is None or smallest is None or e.lower_bound <= smallest,
        }
        wrong += [f"[{e.rank}] {name}: {e}" for name, true in claims.items() if not true]
    sets = [chosen_of(e) for e in found]
    if any(one <= other or other <= one for one, other in combinations(sets, 2)):
        wrong.append("one answer is a part of another")
    if first.complete and set(sets) != {s for s in good if not any(other < s for other in good)}:
        wrong.append("complete, and these are not all")
    return wrong


# What was false: a smaller set than the `optimal` one, a lower bound above a set (100, 151, 229), `not found` beside
# passed tests (19, 43, 275), answers below the confidence (1, 2, 139, 241), a wider pack's columns (334, 335),
# added edges that are not connected (142, 159).
FALSE_ONCE = [1, 2, 19, 43, 100, 139, 142, 151, 159, 229, 241, 275, 334, 335]


@pytest.mark.parametrize("seeds", [FALSE_ONCE, range(1000, 1030)], ids=["false once", "drawn"])
def test_enumeration_contradicts_no_claim(seeds: Any) -> None:
    checked = Counter[str]()
    for seed in seeds:
        case = Case(seed, **({"alternatives": 4} if seed in FALSE_ONCE else {}))
        for key, found in case.explained().items():
            assert not violations(case, found), (seed, key, case.asked)
            checked.update(e.status for e in found)
            checked.update(name for e in found for name in ("optimal", "minimal", "complete") if getattr(e, name))
    assert checked["found"] > 20  # so that something was claimed at all
    assert min(checked["optimal"], checked["minimal"], checked["complete"]) > 5


def test_words_name_what_a_claim_is_made_under() -> None:
    asked = {"question": "why", "units": "edges", "connected": True, "confidence": 0.2, "alternatives": 4}
    case = Case(1, **asked, effort="exact", proof=None)
    what = {"nodes": [0, 1, 2]} if case.node else {}
    for e in cf2.explain(case.model, case.graphs[0] if case.node else case.graphs, **what, **case.asked):
        if e.optimal or e.status in ("impossible", "not found"):
            assert ", among sets that are connected and pass by a margin above 0.2" in e.summary()
            return
    raise AssertionError("nothing was claimed")


# -- edges to keep and to forbid, groups and valid results ------------------------------------------------------


class RuledCase(Case):
    """A request with one rule more, about an edge or some edges of its graphs."""

    def __init__(self, seed: int, rule: str) -> None:
        grouped: dict[str, Any] = {"units": "edges"} if rule == "groups" else {}
        super().__init__(seed, connected=False, confidence=0.0, effort="exact", proof=None, **grouped)
        self.rule = rule
        keys = range(3)
        self.named = {key: [p for p in self.edges(key) if p[0] < p[1]][:1] for key in keys}
        some = [p for p in self.edges(0) if p[0] < p[1]]
        if rule in ("keep", "forbid"):
            self.asked[rule] = {key: self.named[key] for key in keys}
        elif rule == "groups":
            self.asked["groups"] = {"some": some[: len(some) // 2 + 1]}
            self.asked["edits"] = ("remove", "add") if "add" in self.asked["edits"] else ("remove",)
        else:
            self.asked["valid"] = lambda graph: graph.edge_index.size(1) % 4 == 0

    def ruled(self, e: cf2.Explanation) -> Rows:
        """The units that a rule about an edge is about: the edge, and the nodes at its ends."""
        ends = [set(pair) for pair in self.named[e.key]] if self.rule in ("keep", "forbid") else []  # type: ignore[index]
        rows = ((row, e.units.names[kind]) for row, kind in enumerate(e.units.kind.tolist()))
        named = ((row, name, set(e.units.ids[row].tolist())) for row, name in rows)
        return frozenset(
            row
            for row, name, ids in named
            if (name in ("edges", "added_edges") and ids in ends)
            or (name == "nodes" and any(pair & ids for pair in ends))
        )

    def graph(self, e: cf2.Explanation, chosen: Rows, only: bool) -> tuple[Tensor, list[Any]]:
        """What is kept is there under every test; a group goes with all its edges."""
        x, columns = super().graph(e, chosen | self.ruled(e) if only and self.rule == "keep" else chosen, only)
        for row, *pair in e.units.members.tolist():
            x = self.data(e.key).x  # type: ignore[arg-type]
            if (row in chosen) != only:
                columns = [p for p in columns if sorted(p) != sorted(pair)]
        return x, columns

    def passes(self, e: cf2.Explanation, chosen: Rows) -> bool:
        valid = self.rule != "valid" or len(self.graph(e, chosen, False)[1]) % 4 == 0
        return valid and not chosen & self.ruled(e) and super().passes(e, chosen)


@pytest.mark.parametrize("rule", ["keep", "forbid", "groups", "valid"])
def test_enumeration_contradicts_no_claim_under_a_rule(rule: str) -> None:
    claimed = 0
    for seed in range(12):
        case = RuledCase(seed, rule)
        if rule == "valid" and case.node:
            continue  # asked of the receptive field, whose edges are not counted here
        for key, found in case.explained().items():
            assert not violations(case, found), (seed, key, case.asked)
            for e in found:
                if e.status not in ("empty", "not predicted"):
                    assert e.necessary == case.tests(e, chosen_of(e), "without", 0.0)
                    if case.asked["edits"] == ("remove",):
                        assert e.sufficient == case.tests(e, chosen_of(e), "only", 0.0)
                    claimed += e.status == "found" and e.optimal is True
    assert claimed > 2
