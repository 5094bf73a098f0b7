"""Edges to keep and to forbid, groups and valid results against plain enumeration: what `test_claims.py` leaves out."""

from __future__ import annotations

from typing import Any

import pytest
from torch import Tensor

import cf2
from test_claims import Case, Rows, violations
from toys import chosen_of

SEEDS = range(12)


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
    for seed in SEEDS:
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
