"""Every rule with every question, sort of edit and kind of unit, node and graph level, against brute force.

The graph is rebuilt here from the unit table of an explanation; verdicts, rules, `minimal`, `optimal`, `lower_bound`,
"impossible" and "these are all" are decided again by trying all sets.
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import combinations
from typing import Any

import torch
from hypothesis import Phase, assume, given, settings
from hypothesis import strategies as st
from torch import Tensor, nn

import cf2
from toys import GraphNet, NodeNet, chosen_of, pieces, random_graph

KINDS = ["edges", "nodes", "features", ("edges", "features")]
RULES = ["none", "keep", "forbid", "groups", "connected", "valid", "alternatives"]
MOST = 12  # units of an instance of which all sets are tried


class Case:
    """One request, and what is true of every set of its units."""

    def __init__(self, draw: Any) -> None:
        self.question = draw.draw(st.sampled_from(["why", "factual", "counterfactual"]))
        self.rule, self.units = draw.draw(st.sampled_from(RULES)), draw.draw(st.sampled_from(KINDS))
        sorts = [("remove",), ("add",), ("remove", "add")]
        self.edits = draw.draw(st.sampled_from(sorts)) if self.question == "counterfactual" else ("remove",)
        self.node = draw.draw(st.booleans())
        seed = draw.draw(st.integers(0, 10**6))
        wide = self.units in ("features", ("edges", "features"))
        self.data = random_graph(4 if "add" in self.edits or wide else 6, 4 if wide else 6, features=2, seed=seed)
        assume(self.data.edge_index.unique().numel() > 1)
        pairs = [tuple(pair) for pair in self.data.edge_index.t().tolist() if pair[0] < pair[1]]
        assume(pairs)
        self.named = draw.draw(st.sampled_from(pairs))
        layer = draw.draw(st.sampled_from(["sum", "gin", "sage"]))
        model = NodeNet(layer, 2, 2, seed, 2) if self.node else GraphNet(layer, 2, 2, seed)
        self.model: nn.Module = model
        self.grouped = pairs[: len(pairs) // 2 + 1] if self.rule == "groups" else []

    def options(self) -> dict[str, Any]:
        asked: dict[str, Any] = {"question": self.question, "units": self.units}
        if self.question == "counterfactual":
            asked |= {"edits": self.edits, "candidates": "near"}
        if self.rule in ("keep", "forbid"):
            asked[self.rule] = [self.named]
        if self.rule == "groups":
            asked["groups"] = {"some": self.grouped}
        if self.rule == "connected":
            asked["connected"] = True
        if self.rule == "valid":
            asked["valid"] = lambda graph: graph.edge_index.size(1) % 4 == 0
        if self.rule == "alternatives":
            asked["alternatives"] = 50
        return asked

    def fits(self) -> bool:
        """Whether the rule can be asked with these units."""
        names = (self.units,) if isinstance(self.units, str) else self.units
        if self.rule == "valid" and self.node:
            return False  # asked of the receptive field, whose edges are not counted here
        if self.rule == "groups":
            return "edges" in names and "remove" in self.edits
        if self.rule == "connected":
            return not {"features"} & set(names) or "remove" not in self.edits
        return True

    def explained(self) -> list[cf2.Explanation]:
        if self.node:
            return list(cf2.explain(self.model, self.data, nodes=[0], **self.options()))
        return list(cf2.explain(self.model, [self.data], **self.options()))

    # -- what is true --------------------------------------------------------------------------------------------

    def graph(self, e: cf2.Explanation, chosen: frozenset[int], *, only: bool = False) -> tuple[Tensor, Tensor]:
        """Features and edges with the units of a set gone (added ones there), or with only them left."""
        x, columns = self.data.x.clone(), [tuple(pair) for pair in self.data.edge_index.t().tolist()]
        left = list(range(len(x)))
        for row, (kind, ids) in enumerate(zip(e.units.kind.tolist(), e.units.ids.tolist())):
            name, inside = e.units.names[kind], row in chosen
            if name == "added_edges":
                columns += [(ids[0], ids[1]), (ids[1], ids[0])] if inside and not only else []
                continue
            if inside != only and not (only and self.left_alone(name, ids)):
                columns = [pair for pair in columns if not self.governs(e, row, name, ids, pair)]
                if name == "nodes":
                    left.remove(ids[0])
                elif name == "features":
                    x[ids[0], ids[1]] = 0
        columns = [(left.index(a), left.index(b)) for a, b in columns if {a, b} <= {*left}]
        return x[left], torch.tensor(columns, dtype=torch.long).reshape(-1, 2).t()

    def left_alone(self, name: str, ids: Sequence[int]) -> bool:
        """An edge to keep is there whatever is chosen; so is a node at its end."""
        if self.rule != "keep":
            return False
        return ids[0] in self.named if name == "nodes" else name == "edges" and tuple(sorted(ids)) == self.named

    def governs(self, e: cf2.Explanation, row: int, name: str, ids: Sequence[int], pair: tuple[int, int]) -> bool:
        if name == "edges":
            return tuple(sorted(pair)) == tuple(sorted(ids))
        if name == "groups":
            members = e.units.members[e.units.members[:, 0] == row][:, 1:].tolist()
            return sorted(pair) in [sorted(member) for member in members]
        return name == "nodes" and ids[0] in pair

    def says(self, graph: tuple[Tensor, Tensor]) -> int | None:
        """The class, or None for a graph without nodes, which passes no test."""
        x, edge_index = graph
        if not len(x):
            return None
        with torch.no_grad():
            if self.node:
                return int(self.model(x, edge_index)[0].argmax())
            return int(self.model(x, edge_index, batch=torch.zeros(len(x), dtype=torch.long)).argmax())

    def verdicts(self, e: cf2.Explanation, chosen: frozenset[int]) -> tuple[bool, bool]:
        alone = self.says(self.graph(e, chosen, only=True)) == e.prediction
        return alone, self.says(self.graph(e, chosen)) not in (e.prediction, None)

    def passes(self, e: cf2.Explanation, chosen: frozenset[int]) -> bool:
        sufficient, necessary = self.verdicts(e, chosen)
        asked = {"why": sufficient and necessary, "factual": sufficient, "counterfactual": necessary}[self.question]
        return asked and self.keeps_rule(e, chosen)

    def keeps_rule(self, e: cf2.Explanation, chosen: frozenset[int]) -> bool:
        names = [(e.units.names[e.units.kind[row]], e.units.ids[row].tolist()) for row in chosen]
        if self.rule == "keep":
            return not any(self.left_alone(name, ids) for name, ids in names)
        if self.rule == "forbid":
            pairs = [tuple(sorted(ids)) for name, ids in names if name in ("edges", "added_edges")]
            return self.named not in pairs and not any(name == "nodes" and ids[0] in self.named for name, ids in names)
        if self.rule == "valid":
            return self.graph(e, chosen)[1].size(1) % 4 == 0
        if self.rule == "connected":
            return self.pieces(e, chosen) <= 1
        return True

    def pieces(self, e: cf2.Explanation, chosen: frozenset[int]) -> int:
        """Connected pieces of what is chosen, the target with it; nodes are joined by edges between them."""
        parts: list[set[int]] = [{0}] if self.node else []
        own = {ids[0] for row in chosen if e.units.names[e.units.kind[row]] == "nodes" for ids in [e.units.ids[row]]}
        own |= {0} if self.node and "nodes" in e.units.names else set()
        for row in chosen:
            name, ids = e.units.names[e.units.kind[row]], e.units.ids[row].tolist()
            parts.append({ids[0]} if name == "nodes" else set(ids))
        parts += [set(p) for p in self.data.edge_index.t().tolist() if "nodes" in e.units.names and set(p) <= own]
        return pieces(parts)


@settings(max_examples=40, deadline=None, phases=[Phase.generate])
@given(st.data())
def test_every_combination_is_what_brute_force_says(draw: Any) -> None:
    case = Case(draw)
    assume(case.fits())
    found = case.explained()
    e = found[0]
    if e.status in ("empty", "not predicted"):
        return
    assert e.status in ("found", "not found", "impossible")
    for one in found:
        chosen = chosen_of(one)
        sufficient, necessary = case.verdicts(one, chosen)
        assert one.necessary == necessary
        assert "add" in case.edits or one.sufficient == sufficient
        assert (one.status == "found") <= case.passes(one, chosen)
        if one.minimal:
            assert not any(case.passes(one, chosen - {row}) for row in chosen)
    assume(e.num_units <= MOST)
    every = [frozenset(rows) for count in range(e.num_units + 1) for rows in combinations(range(e.num_units), count)]
    good = [rows for rows in every if case.passes(e, rows)]
    smallest = min((len(rows) for rows in good), default=None)
    if e.status == "impossible":
        assert not good
    if e.status == "found":
        assert smallest is not None
        assert e.size >= smallest
        assert not e.optimal or e.size == smallest
    if e.lower_bound is not None and smallest is not None:
        assert e.lower_bound <= smallest
    listed = [chosen_of(one) for one in found]
    assert not [pair for pair in combinations(listed, 2) if pair[0] <= pair[1] or pair[1] <= pair[0]]
    if e.complete:
        minimal = {rows for rows in good if not any(other < rows for other in good)}
        assert set(listed) == minimal
