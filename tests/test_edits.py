"""Counterfactuals that remove, add and change: every claim compared with brute force that shares nothing with cf2."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import combinations
from typing import Any, get_args

import pytest
import torch
from hypothesis import assume, given, settings
from hypothesis import strategies as st
from torch import Tensor, nn
from torch_geometric.data import Data

import cf2
from cf2.errors import CF2Error
from cf2.units.edits import EDITS, edit_of
from cf2.units.kinds import KINDS
from toys import GraphNet, NodeNet, random_graph, same_results

Edit = tuple[str, tuple[int, ...]]  # a kind of unit and its ids


def one_hot_graph(nodes: int, edges: int, seed: int, *, directed: bool = False) -> Data:
    """A random simple graph whose nodes are of three colours."""
    graph = random_graph(nodes, edges, directed=directed, seed=seed)
    colours = torch.randint(0, 3, (nodes,), generator=torch.Generator().manual_seed(seed))
    graph.x = torch.eye(4)[colours]
    graph.x[:, 3] = torch.linspace(-1, 1, nodes)
    return graph


def rebuilt(data: Data, edits: Sequence[Edit], *, directed: bool) -> tuple[Tensor, Tensor]:
    """Features and edges of the whole graph after edits, one by one."""
    x = data.x.clone()
    columns = data.edge_index.t().tolist()
    for kind, ids in edits:
        if kind == "edges":
            gone = {ids[:2]} if directed else {ids[:2], ids[1::-1]}
            columns = [pair for pair in columns if tuple(pair) not in gone]
        elif kind == "added_edges":
            columns += [list(ids[:2])] if directed else [list(ids[:2]), list(ids[1::-1])]
        elif kind == "nodes":
            columns = [pair for pair in columns if ids[0] not in pair]
            x[ids[0]] = 0
        elif kind == "features":
            x[ids[0], ids[1]] = 0
        else:
            node, column, source, new = ids[0], ids[1], int(ids[2]), ids[3]
            x[node, column] = new
            if source >= 0:
                x[node, source] = 0
    return x, torch.tensor(columns, dtype=torch.long).reshape(-1, 2).t()


def answer(model: nn.Module, x: Tensor, edge_index: Tensor, key: Any) -> int:
    with torch.no_grad():
        if key is None:
            return int(model(x, edge_index, batch=torch.zeros(len(x), dtype=torch.long)).argmax(1))
        return int(model(x, edge_index).argmax(1)[key])


def units(e: cf2.Explanation) -> list[Edit]:
    """Every unit of an explanation, with what a change writes."""
    found: list[Edit] = []
    for row, (kind, ids) in enumerate(zip(e.units.kind.tolist(), e.units.ids.tolist())):
        name = e.units.names[kind]
        more = (e.units.values[row, 0], e.units.values[row, 2]) if name == "changes" else ()
        found.append((name, (*ids, *more)))
    return found


def chosen_units(e: cf2.Explanation) -> list[Edit]:
    return [unit for unit, inside in zip(units(e), e.selected.tolist()) if inside]


def contradicts(edits: Sequence[Edit]) -> bool:
    """Whether two changes are of the same feature: the same column, or colours of one node."""
    changed = [(ids[0], "colour" if ids[1] < 3 else ids[1]) for kind, ids in edits if kind == "changes"]
    return len(set(changed)) < len(changed)


def says(model: nn.Module, data: Data, e: cf2.Explanation, edits: Sequence[Edit]) -> int:
    """What the model says of the whole graph after edits."""
    return answer(model, *rebuilt(data, edits, directed=e.directed), e.key if e.task == "node" else None)


def reached(model: nn.Module, data: Data, e: cf2.Explanation, edits: Sequence[Edit], target: int | None) -> bool:
    said = says(model, data, e, edits)
    return said != e.prediction if target is None else said == target


def smaller(every: Sequence[Edit], most: int) -> Iterator[tuple[Edit, ...]]:
    for count in range(most):
        yield from combinations(every, count)


SORTS = [("add",), ("change",), ("remove", "add"), ("remove", "add", "change")]


@settings(max_examples=40, deadline=None)
@given(st.data())
def test_every_claim_about_edits_is_true_on_the_whole_graph(draw: Any) -> None:
    seed, node_level = draw.draw(st.integers(0, 10**6)), draw.draw(st.booleans())
    sorts = draw.draw(st.sampled_from(SORTS))
    kind = draw.draw(st.sampled_from(["sum", "gcn", "gin", "sage", "gat"]))
    directed = draw.draw(st.booleans())
    data = one_hot_graph(5, draw.draw(st.integers(2, 6)), seed, directed=directed)
    assume(data.edge_index.unique().numel() > 1)
    target = draw.draw(st.sampled_from([None, 0, 1]))
    options: dict[str, Any] = {"question": "counterfactual", "edits": sorts, "target": target, "directed": directed}
    options["one_hot"] = [(0, 1, 2)]
    if node_level:
        model: nn.Module = NodeNet(kind, classes=3, seed=seed, layers=2)
        (e,) = cf2.explain(model, data, nodes=[0], **options)
    else:
        model = GraphNet(kind, classes=3, seed=seed)
        (e,) = cf2.explain(model, [data], **options)
    assert e.prediction == answer(model, data.x, data.edge_index, 0 if node_level else None)
    if e.status in ("not predicted", "empty"):
        assert e.status == "empty" or e.prediction == target
        return
    every, chosen = units(e), chosen_units(e)
    assert not contradicts(chosen)
    assert e.necessary == reached(model, data, e, chosen, target)
    assert (e.status == "found") == e.necessary
    if e.status == "found":
        for number in range(len(chosen)):
            assert not reached(model, data, e, chosen[:number] + chosen[number + 1 :], target)
        applied = e.apply(data)
        said = answer(model, applied.x, applied.edge_index, 0 if node_level else None)
        assert said == says(model, data, e, chosen)
    proved = e.size if e.optimal else int(e.lower_bound or 0)
    for edits in smaller(every, min(proved, 3)):
        assert contradicts(edits) or not reached(model, data, e, edits, target)


CHAIN = torch.tensor([[0, 1, 2, 3, 4, 5, 6, 7], [1, 2, 3, 4, 5, 6, 7, 8]])


@pytest.mark.parametrize(
    ("candidates", "found"), [([(0, 8), (0, 7)], {(0, 7), (0, 8)}), ("far", {(0, other) for other in range(2, 9)})]
)
def test_an_added_edge_counts_with_all_that_lies_behind_it(candidates: Any, found: set[tuple[int, int]]) -> None:
    """What an edge brings near is in the instance: the verdict is that of the whole graph, far away as it may be."""
    stream = torch.Generator().manual_seed(3)
    data = Data(x=torch.randn(9, 4, generator=stream), edge_index=torch.cat([CHAIN, CHAIN.flip(0)], 1))
    options: dict[str, Any] = {"question": "counterfactual", "edits": "add", "candidates": candidates}
    for seed in range(6):
        model = NodeNet("gcn", seed=seed, layers=2)
        (e,) = cf2.explain(model, data, nodes=[0], **options)
        assert {ids for _, ids in units(e)} == found
        assert e.necessary == reached(model, data, e, chosen_units(e), None)
    if candidates == "far":
        with pytest.raises(cf2.CF2Error, match="whole graphs"):
            cf2.explain(GraphNet("gcn"), [data], **options)


def test_far_edges_of_a_directed_graph_lead_to_the_target_and_away_from_it() -> None:
    stream = torch.Generator().manual_seed(3)
    data = Data(x=torch.randn(9, 4, generator=stream), edge_index=CHAIN.flip(0))
    flipped = 0
    for seed in range(6):
        model = NodeNet("gcn", seed=seed, layers=2)
        (e,) = cf2.explain(model, data, nodes=[0], question="counterfactual", edits="add", candidates="far")
        assert {ids for _, ids in units(e)} == {(o, 0) for o in range(2, 9)} | {(0, o) for o in range(1, 9)}
        assert e.necessary == reached(model, data, e, chosen_units(e), None)
        flipped += bool(e.necessary)
    assert flipped, "edges out of the target alone decide nothing"


def test_the_edits_say_what_was_done_and_nothing_without_a_counterfactual() -> None:
    data, model = one_hot_graph(6, 6, 1), NodeNet("sum", seed=2, layers=2)
    (e,) = cf2.explain(model, data, nodes=[0], question="counterfactual", edits=("remove", "add", "change"))
    (why,) = cf2.explain(model, data, nodes=[0])
    assert why.edits == []
    assert e.edits
    for sort, ends, *values in e.edits:
        if sort == "change":
            assert data.x[ends[0], ends[1]] == pytest.approx(values[0], abs=1e-6)
            assert values[0] != values[1]
        else:
            there = [list(ends), list(ends[::-1])] in [[p, p[::-1]] for p in data.edge_index.t().tolist()]
            assert there == (sort == "remove")


def test_every_kind_of_edit_is_one_row_with_its_words_and_looks() -> None:
    assert tuple(EDITS) == get_args(cf2.options.Edit)
    assert {edit.unit_kind for edit in EDITS.values()} - {""} == {kind.name for kind in KINDS.values() if kind.absent}
    for part in ("participle", "past", "noun", "colour", "dash", "mark"):
        assert len({getattr(edit, part) for edit in EDITS.values()}) == len(EDITS)
    assert edit_of("nodes") is edit_of("a kind of one's own") is EDITS["remove"]


# -- rules ----------------------------------------------------------------------------------------------------


GRAPH, NET = random_graph(10, 14, seed=3), NodeNet("sum", seed=1, layers=2)


def test_groups_of_a_graph_whose_target_has_only_a_loop() -> None:
    data = GRAPH.clone()
    data.edge_index = torch.tensor([[0, 1, 2], [0, 2, 1]])
    assert cf2.explain(NET, data, nodes=[0], groups=[-1, 0, 0])[0].status == "empty"


def test_edges_of_a_group_go_and_stay_together() -> None:
    data, low = GRAPH.clone(), GRAPH.edge_index.min(0).values
    data.ring = torch.where(low < 3, low, -1)
    by_name, by_values = (cf2.explain(NET, data, nodes=range(10), groups=given) for given in ("ring", data.ring))
    assert same_results(by_name, by_values)
    assert any("groups" in e.units.names and len(e.chosen("groups")) for e in by_name)
    for e in by_name:
        chosen = {tuple(sorted(pair)) for pair in e.edges.tolist()}
        members = {tuple(pair) for pair in e.units.members[:, 1:].tolist()}
        for pair in members:
            mates = {other for other in members if other[0] == pair[0]}
            assert mates <= chosen or not mates & chosen


FLIPS = (one_hot_graph(6, 7, 1), GraphNet("sum", classes=3, seed=6))  # single edits of every sort change its class


def test_only_valid_results_are_accepted() -> None:
    data, model = FLIPS
    seen: list[Data] = []

    def at_least_as_many_edges(graph: Data) -> bool:
        seen.append(graph)
        return graph.edge_index.size(1) >= data.edge_index.size(1)

    options: dict[str, Any] = {"question": "counterfactual", "edits": ("remove", "add")}
    (e,) = cf2.explain(model, [data], valid=at_least_as_many_edges, **options)
    assert seen
    assert e.status == "found"
    assert e.apply(data).edge_index.size(1) >= data.edge_index.size(1)
    (none,) = cf2.explain(model, [data], valid=lambda graph: False, **options)
    assert none.status != "found"
    with pytest.raises(cf2.CF2Error, match="ZeroDivisionError"):
        cf2.explain(model, [data], valid=lambda graph: 1 / 0, **options)


def test_dear_edits_are_avoided() -> None:
    data, model = FLIPS
    options: dict[str, Any] = {"question": "counterfactual", "edits": ("remove", "add", "change")}
    (plain,) = cf2.explain(model, [data], **options)
    sort = plain.edits[0][0]
    (dear,) = cf2.explain(model, [data], costs={sort: 50.0}, **options)
    assert (plain.status, dear.status) == ("found", "found")
    assert sort not in {sort for sort, *_ in dear.edits}


MISTAKES: list[tuple[dict[str, Any], str]] = [
    ({"edits": "add"}, "question='counterfactual'"),
    ({"units": "added_edges"}, "that are in the graph"),
    ({"units": "groups"}, "which edges are one unit"),
    ({"groups": "rings"}, "`rings` of the data"),
    ({"groups": [0, 1]}, "one number per edge"),
    ({"question": "counterfactual", "edits": "add", "method": "gnnexplainer"}, "scores only what is there"),
    ({"connected": True, "units": "features"}, "units that can be connected"),
    ({"keep": [1, 2, 3]}, "pairs of nodes"),
    ({"costs": {"add": -1}}, "above 0"),
    ({"question": "counterfactual", "edits": "change", "one_hot": [(0, 1)]}, "exactly one 1"),
    ({"question": "counterfactual", "edits": "add", "valid": "molecule"}, "`atoms`"),
]


@pytest.mark.parametrize(("options", "said"), MISTAKES)
def test_mistakes_are_answered_with_a_sentence(options: dict[str, Any], said: str) -> None:
    with pytest.raises(cf2.CF2Error, match=said):
        cf2.explain(NET, GRAPH, nodes=[0], **options)


# -- other answers, and answers that hold nearby ----------------------------------------------------------------


class Loudness(nn.Module):
    """A node of class 1 hears more than two and a half from its neighbours: the weights of its edges."""

    def forward(self, x: Tensor, edge_index: Tensor, edge_weight: Tensor) -> Tensor:
        heard = torch.zeros(len(x)).index_add(0, edge_index[1], edge_weight)
        return torch.stack([torch.zeros(len(x)), 4 * heard - 10], 1)


@pytest.mark.parametrize("given", [None, 2.0])
def test_an_applied_edge_is_the_verified_one(given: float | None) -> None:
    """Weights near node 0 are 1, most of the graph has 3; one loud edge is enough, and so would be two given ones."""
    near, far = [(0, 1), (1, 2)], [(node, node + 1) for node in range(4, 12)]
    edges = torch.tensor([*near, *far]).t()
    weights = torch.tensor([1.0] * len(near) + [3.0] * len(far)).repeat(2)
    data = Data(x=torch.ones(13, 1), edge_index=torch.cat([edges, edges.flip(0)], 1), edge_weight=weights)
    more = {} if given is None else {"added_attributes": {"edge_weight": given}}
    (e,) = cf2.explain(Loudness(), data, nodes=[0], question="counterfactual", edits=("add",), **more)
    assert e.status == "found"
    made = e.apply(data)
    assert set(made.edge_weight[data.edge_index.size(1) :].tolist()) == {given or 3.0}
    assert int(Loudness()(made.x, made.edge_index, made.edge_weight).argmax(1)[0]) == 1 != e.prediction


def test_an_edge_goes_with_its_reverse_also_where_that_is_out_of_sight() -> None:
    """Node 0 sees 1→2 and not 2→1, until an edge 0–1 is added: to remove 1–2 removes both then, too."""
    data, model = random_graph(4, 6, features=2, seed=1088), NodeNet("sum", 2, 2, 1088, 2)
    (e,) = cf2.explain(model, data, nodes=[0], question="counterfactual", edits=("remove", "add"), candidates="near")
    assert e.status == "found"
    after = e.apply(data)
    assert answer(model, after.x, after.edge_index, 0) != e.prediction


def test_a_reference_makes_edits_the_same_alone_and_among_others() -> None:
    """One-hot columns and values are those of the reference, whatever graphs are explained together."""
    draw = torch.Generator().manual_seed(4)
    graphs = [random_graph(5, 6, features=3, seed=seed) for seed in range(12)]
    for data in graphs:
        kind = torch.randint(0, 2, (5,), generator=draw)
        data.x = torch.cat([torch.eye(3)[kind], torch.randn(5, 1, generator=draw)], 1)
    graphs[7].x[0, :3] = torch.tensor([0.0, 0.0, 1.0])  # a value that few graphs hold
    asked = {"question": "counterfactual", "edits": "change", "effort": "exact"}
    model = GraphNet("gin", 4, 2, 1)

    def edits(data: list[Data], **given: Any) -> tuple[list[Any], str]:
        e = cf2.explain(model, data, **asked, **given)[0]
        return [e.status, e.edits, e.optimal, e.num_units], e.summary()

    alone, text = edits(graphs[:1], reference=graphs)
    assert alone == edits(graphs, reference=graphs)[0] == edits(graphs)[0]
    assert alone[3] != edits(graphs[:1])[0][3]
    assert alone[2]
    assert "take new values from the reference" in text
    assert "take new values from the data" in edits(graphs)[1]
    with pytest.raises(CF2Error, match="with 4 feature columns"):
        edits(graphs, reference=random_graph(3, 3, features=2))
