"""Typed graphs: verdicts and edits are true of the *full* HeteroData, rebuilt by code that shares nothing with cf2."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from itertools import combinations, product
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor, nn
from torch_geometric.data import Data, HeteroData
from torch_geometric.nn import GATConv, HANConv, HeteroConv, RGCNConv

import cf2
from cf2.graphs.targets import GraphTargets, targets_for
from cf2.models.adapters import adapter_for
from cf2.models.predictor import Predictor
from cf2.options import Spec
from cf2.units.edits import Editing
from cf2.units.packs import Pack, pack
from toys import same_answer, same_results
from typed_toys import BACK, HAS, KNOWS, LIKES, SEES, graph, kept, model, says, transformed

QUICK: dict[str, Any] = {"effort": "quick", "epochs": 2}
OUTPUTS: dict[str, tuple[int, dict[str, Any]]] = {
    "classes": (3, {"output": "logits"}),
    "one logit": (1, {"output": "logits"}),
    "labels": (4, {"output": "multilabel_logits", "target": 2}),
    "number": (1, {"output": "regression", "tolerance": 0.15}),
}


def without_pair(data: HeteroData, u: int, v: int) -> HeteroData:
    return kept(data, {LIKES: [(u, v)], BACK: [(v, u)]}, inside=False)


ASKED = {
    "node": ({"nodes": [0, 1, 3], "node_type": "user"}, [0, 1, 3]),
    "pair": ({"pairs": [(0, 0), (1, 1), (4, 2)], "edge_type": LIKES}, [(0, 0), (1, 1), (4, 2)]),
    "graph": ({"level": "graph"}, [0]),
}


KINDS = ["edges", "features", "node_features", "columns", "nodes"]
UNITS = [*KINDS, "edges,features", "edges,node_features", "edges,columns"]


def without(data: HeteroData, e: cf2.Explanation, gone: Any) -> tuple[HeteroData, Any]:
    """The graph without what the units of a mask stand for, from flat ids by hand, and the key of the same target."""
    first_of, total = {}, 0
    for name in data.node_types:
        first_of[name], total = total, total + data[name].num_nodes
    owner = [name for name in data.node_types for _ in range(data[name].num_nodes)]
    made, edges = data.clone(), {}
    left = {name: list(range(data[name].num_nodes)) for name in data.node_types}
    for place in gone.nonzero()[0].tolist():
        kind, (first, second) = e.units.names[e.units.kind[place]], e.units.ids[place].tolist()
        if kind == "edges":
            src, rel, dst = data.edge_types[int(e.units.types[place])]
            u, v = first - first_of[src], second - first_of[dst]
            for one, pair in mirrored((src, rel, dst), u, v):
                edges.setdefault(one, []).append(pair)
        elif kind == "columns":
            made[data.node_types[int(e.units.types[place])]].x[:, second] = 0
        else:
            name, node = owner[first], first - first_of[owner[first]]
            if kind == "nodes":
                left[name].remove(node)
            else:
                made[name].x[node, second if kind == "features" else slice(None)] = 0
    made = kept(made, edges, inside=False)
    for name, nodes in left.items():
        made[name].x = made[name].x[nodes]
    for src, rel, dst in data.edge_types:
        pairs = made[src, rel, dst].edge_index.t().tolist()
        moved = [(left[src].index(u), left[dst].index(v)) for u, v in pairs if u in left[src] and v in left[dst]]
        made[src, rel, dst].edge_index = torch.tensor(moved, dtype=torch.long).reshape(-1, 2).t()
    if isinstance(e.key, tuple):
        return made, (left[LIKES[0]].index(e.key[0]), left[LIKES[2]].index(e.key[1]))
    return made, left["user"].index(e.key) if e.key in left["user"] else e.key


def mirrored(kind: Any, u: int, v: int) -> list[tuple[Any, tuple[int, int]]]:
    """An edge and its mirror image, by type: one unit."""
    back = {LIKES: BACK, BACK: LIKES, KNOWS: KNOWS}.get(kind)
    return [(kind, (u, v)), *([(back, (v, u))] if back else [])]


@pytest.mark.parametrize("units", UNITS)
@pytest.mark.parametrize("output", OUTPUTS)
@pytest.mark.parametrize("level", ASKED)
def test_verdicts_are_true_of_the_full_graph(level: str, output: str, units: str) -> None:
    width, asked = OUTPUTS[output]
    given, keys = ASKED[level]
    data, net = graph(1), model("graph", width, 1)
    found, compared = cf2.explain(net, data, **given, **asked, units=units, **QUICK), 0
    assert [e.key for e in found] == keys
    for e in found:
        whole = without_pair(data, *e.key) if level == "pair" else data
        row = says(net, whole, level, e.key)
        for gone, verdict, claim in (
            (~e.selected, e.sufficient, e.sufficient),
            (e.selected, not e.necessary, e.necessary),
        ):
            part, key = without(whole, e, gone)
            if not sum(part[name].num_nodes for name in part.node_types):  # no graph: neither the same nor another
                assert not claim
                continue
            true = same_answer(asked, row, says(net, part, level, key))
            assert true is None or true == verdict, (e.key, gone)
            compared += true is not None
    assert compared


@pytest.mark.parametrize("units", UNITS)
def test_sets_that_pass_are_found_for_every_kind_of_unit(units: str) -> None:
    """The comparison above is of sets that are not empty."""
    asked: dict[str, Any] = {"node_type": "user", "units": units, "effort": "quick"}
    found = [e for seed in range(3) for e in cf2.explain(model("graph", 3, seed), graph(seed), range(5), **asked)]
    assert any(e.status == "found" and e.size for e in found)


ANSWERED: list[tuple[str, int, dict[str, Any]]] = [
    *((kind, 3, {"effort": "quick"}) for kind in ("sage", "gat", "hgt")),
    *(("graph", 1, {"method": method}) for method in ("cf2-relaxed", "cf-gnnexplainer", "cf2")),
    *(("graph", 1, {"method": method, "k": 2}) for method in ("gnnexplainer", "gradient", "random")),
]


@pytest.mark.parametrize(("kind", "seed", "options"), ANSWERED)
def test_verdicts_are_true_for_every_layer_and_method(kind: str, seed: int, options: dict[str, Any]) -> None:
    data, net = graph(seed), model(kind, 3, seed)
    found = cf2.explain(net, data, range(5), node_type="user", **options)
    for e in found:
        row = says(net, data, "node", e.key)
        assert e.probabilities == pytest.approx(row.softmax(0).tolist(), abs=1e-5)
        for inside, verdict in ((True, e.sufficient), (False, not e.necessary)):
            true = same_answer({"output": "logits"}, row, says(net, kept(data, e.edges, inside), "node", e.key))
            assert true is None or true == verdict
    assert "method" in options or found.where(status="found")


def ends_of(e: cf2.Explanation) -> set[Any]:
    """The flat ids and the number of the type of each unit."""
    return {(tuple(ids), kind) for ids, kind in zip(e.units.ids.tolist(), e.units.types.tolist())}


def test_the_smallest_set_is_the_smallest_by_brute_force() -> None:
    checked = 0
    for seed in range(4):
        data, net = graph(seed), model("graph", 2, seed)
        for e in cf2.explain(net, data, range(5), node_type="user"):
            count = len(e.units)
            if count > 7 or not (e.optimal or e.status == "impossible"):
                continue
            y = int(says(net, data, "node", e.key).argmax())
            sets = [np.array(chosen, dtype=bool) for chosen in product((False, True), repeat=count)]
            passing = [
                int(chosen.sum())
                for chosen in sets
                if int(says(net, without(data, e, ~chosen)[0], "node", e.key).argmax()) == y
                and int(says(net, without(data, e, chosen)[0], "node", e.key).argmax()) != y
            ]
            assert (min(passing) == e.size) if e.status == "found" else not passing
            checked += 1
    assert checked >= 3


# -- units ------------------------------------------------------------------------------------------------------


def test_units_are_one_within_a_type_and_tied_to_an_exact_mirror() -> None:
    data, net = graph(), model("sage")
    options = {"nodes": [0], "node_type": "user", "method": "gradient", "k": 1}
    (e,) = cf2.explain(net, data, **options)
    assert e.types is not None
    kinds = dict(zip(e.types.edges, e.types.partners))
    place = {kind: number for number, kind in enumerate(e.types.edges)}
    assert kinds == {LIKES: place[BACK], BACK: place[LIKES], SEES: -1, HAS: -1, KNOWS: place[KNOWS]}
    assert {((0, 5), place[LIKES]), ((0, 5), place[SEES])} <= ends_of(e), "two relations, two units"
    (apart,) = cf2.explain(net, data, **options, reverse="none")
    assert set(apart.types.partners) == {-1, place[KNOWS]}  # type: ignore[union-attr]
    assert apart.num_units > e.num_units
    (named,) = cf2.explain(net, data, **options, reverse={BACK: LIKES})
    assert named.types == e.types
    assert np.array_equal(named.units.ids, e.units.ids)
    for wrong, said in (
        ({LIKES: SEES}, "to go back from item to user"),
        ({LIKES: ("item", "liked", "user")}, "an edge type in `reverse`"),
        ({LIKES: BACK, SEES: BACK}, "every edge type once"),
        ({LIKES: 3}, "a mapping from edge types to their reverse types"),
        ("all", "a mapping from edge types to their reverse types"),
    ):
        with pytest.raises(cf2.CF2Error, match=said):
            cf2.explain(net, data, **options, reverse=wrong)
    data[BACK].edge_index = data[BACK].edge_index[:, 1:]
    with pytest.raises(cf2.CF2Error, match=r"mirror image in .*1 without"):
        cf2.explain(net, data, **options, reverse={LIKES: BACK})
    (broken,) = cf2.explain(net, data, **options)
    assert broken.types.partners[place[LIKES]] == -1  # type: ignore[union-attr]


def test_padding_is_no_unit_and_columns_belong_to_a_type() -> None:
    data, net = graph(), model("sage")
    widths = {"user": 4, "item": 2, "tag": 3}
    (e,) = cf2.explain(net, data, [0], node_type="user", units="features", method="gradient", threshold=0)
    for name, entries in e.features.items():
        assert entries[:, 1].max() < widths[name]
    (e,) = cf2.explain(net, data, [0], node_type="user", units="columns", method="gradient", k=2)
    counts = np.bincount(e.units.types, minlength=3).tolist()
    assert counts == [widths[name] for name in e.types.nodes]  # type: ignore[union-attr]
    chosen = [(e.types.nodes[t], c) for t, (_, c) in zip(e.units.types[e.selected], e.chosen("columns"))]  # type: ignore[union-attr]
    only = data.clone()
    for name in data.node_types:
        columns = [c for kind, c in chosen if kind == name]
        only[name].x = torch.zeros_like(data[name].x)
        only[name].x[:, columns] = data[name].x[:, columns]
    assert e.probabilities_only == pytest.approx(says(net, only, "node", 0).softmax(0).tolist(), abs=1e-5)


def test_of_a_typed_pair_only_its_own_relation_is_left_out() -> None:
    data, net = graph(), model("sage", 1)
    (e,) = cf2.explain(net, data, pairs=[(0, 0)], edge_type=LIKES, output="logits", **QUICK)
    likes, sees = (e.types.edges.index(kind) for kind in (LIKES, SEES))  # type: ignore[union-attr]
    assert ((0, 5), likes) not in ends_of(e)
    assert ((0, 5), sees) in ends_of(e)
    p = torch.sigmoid(says(net, without_pair(data, 0, 0), "pair", (0, 0))).item()
    assert e.probabilities[1] == pytest.approx(p, abs=1e-5)
    (there,) = cf2.explain(net, data, pairs=[(0, 0)], edge_type=LIKES, output="logits", leave_out_pair=False, **QUICK)
    assert ((0, 5), likes) in ends_of(there)
    new = ("user", "will_buy", "item")
    (other,) = cf2.explain(net, data, pairs=[(0, 0)], edge_type=new, output="logits", **QUICK)
    assert other.num_units == there.num_units, "a relation that the graph has none of"


@contextmanager
def packed(net: nn.Module, keys: tuple[int, ...]) -> Iterator[tuple[Predictor, Pack]]:
    targets = targets_for(graph(), "node", Spec(node_type="user"))
    with Predictor(net, "node", adapter=adapter_for(net, targets.level, targets=targets)) as predictor:
        yield predictor, pack([targets.instance(key, 3) for key in keys], takes=predictor.adapter.takes)


@pytest.mark.parametrize("make", [lambda: model("graph"), transformed], ids=["HeteroConv", "to_hetero"])
def test_a_soft_mask_of_zeros_and_ones_is_the_removal_of_messages(make: Any) -> None:
    """With sums, an edge whose messages are scaled by 0 is an edge that is not there."""
    torch.manual_seed(0)
    net = make()
    for module in net.modules():
        if type(module).__name__ == "SAGEConv":
            module.aggr_module = type(model("graph").layers[0].convs[LIKES].aggr_module)()  # type: ignore[union-attr]
    stream = torch.Generator().manual_seed(1)
    with packed(net, (0, 2)) as (predictor, two):
        predictor.predict(two)
        for _ in range(5):
            states = torch.rand(two.units.count, generator=stream) < 0.6
            hard = predictor.hard(two, states)
            with predictor.soft(two) as run:
                assert torch.allclose(run(states.float()), hard, atol=1e-5)


def test_soft_masks_reach_every_type_of_hgt() -> None:
    with packed(model("hgt"), (0,)) as (predictor, one):
        before = predictor.predict(one)
        ones = torch.ones(one.units.count, requires_grad=True)
        with predictor.soft(one) as run:
            said = run(ones)
            assert torch.allclose(said, before, atol=1e-6)
            (slope,) = torch.autograd.grad(said[0, 0], ones)
    assert (slope != 0).sum() >= one.units.count - 1


# -- how a model is called ------------------------------------------------------------------------------------------


def test_models_of_to_hetero_return_rows_by_type() -> None:
    data, net = graph(), transformed()
    (e,) = cf2.explain(net, data, [1], node_type="item", **QUICK)
    row = net(data.x_dict, data.edge_index_dict)["item"][1].softmax(0)
    assert e.probabilities == pytest.approx(row.tolist(), abs=1e-5)


def test_a_model_may_take_one_hetero_data_or_be_called_by_the_user() -> None:
    data, net = graph(), model("sage")

    class OfData(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.net = net

        def forward(self, data: HeteroData) -> Tensor:
            return self.net(data.x_dict, data.edge_index_dict)

    plain = cf2.explain(net, data, [0, 1], node_type="user", **QUICK)
    assert same_results(list(plain), list(cf2.explain(OfData(), data, [0, 1], node_type="user", **QUICK)))

    def call(given: Any, batch: HeteroData) -> Tensor:
        assert torch.equal(batch["user"].x, data["user"].x[batch["user"].n_id])
        return given.head(given.encode(batch.x_dict, batch.edge_index_dict)["user"])[batch.index] * 3

    assert same_results(list(plain), list(cf2.explain(net, data, [0, 1], node_type="user", call=call, **QUICK)))

    def decode(given: Any, batch: HeteroData) -> Tensor:
        x = given.encode(batch.x_dict, batch.edge_index_dict)
        tail, head = batch[LIKES].edge_label_index
        return given.head(x["user"][tail] * x["item"][head]) * 3

    pairs: dict[str, Any] = {"pairs": [(0, 0), (4, 2)], "edge_type": LIKES, **QUICK}
    assert same_results(list(cf2.explain(net, data, **pairs)), list(cf2.explain(net, data, call=decode, **pairs)))


def test_edge_attributes_go_with_their_edges() -> None:
    data = graph()
    stream = torch.Generator().manual_seed(5)
    for kind, width in ((LIKES, 2), (BACK, 2), (SEES, 3)):
        data[kind].edge_attr = torch.randn(data[kind].edge_index.size(1), width, generator=stream)

    class WithAttributes(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            torch.manual_seed(1)
            layers = {
                kind: GATConv((-1, -1), 8, add_self_loops=False, edge_dim=width)
                for kind, width in ((LIKES, 2), (BACK, 2), (SEES, 3), (KNOWS, None), (HAS, None))
            }
            self.first = HeteroConv(layers, aggr="sum")
            self.head = nn.Linear(8, 3)

        def forward(self, x_dict: Any, edge_index_dict: Any, edge_attr_dict: Any) -> Tensor:
            return self.head(self.first(x_dict, edge_index_dict, edge_attr_dict=edge_attr_dict)["item"]) * 5

    net = WithAttributes()
    with torch.no_grad():
        net(data.x_dict, data.edge_index_dict, data.edge_attr_dict)
    for e in cf2.explain(net, data, range(4), node_type="item", **QUICK):
        with torch.no_grad():
            row = net(data.x_dict, data.edge_index_dict, data.edge_attr_dict)[e.key]
            assert e.probabilities == pytest.approx(row.softmax(0).tolist(), abs=1e-5)
            only = kept(data, e.edges, True)
            alone = net(only.x_dict, only.edge_index_dict, only.edge_attr_dict)[e.key]
        assert e.probabilities_only == pytest.approx(alone.softmax(0).tolist(), abs=1e-5)


class Relations(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        torch.manual_seed(0)
        self.first, self.second = RGCNConv(4, 8, 3), RGCNConv(8, 3, 3)

    def forward(self, x: Tensor, edge_index: Tensor, edge_type: Tensor) -> Tensor:
        return self.second(self.first(x, edge_index, edge_type).relu(), edge_index, edge_type) * 4


def test_a_homogeneous_model_reads_edge_type() -> None:
    made = torch.Generator().manual_seed(2)
    edge_index = torch.randint(0, 12, (2, 24), generator=made)
    data = Data(x=torch.randn(12, 4, generator=made), edge_index=edge_index)
    data.edge_type = torch.randint(0, 3, (24,), generator=made)
    net = Relations()
    for e in cf2.explain(net, data, range(0, 12, 3), **QUICK):
        chosen = {tuple(pair) for pair in e.edges.tolist()}
        stay = [n for n, pair in enumerate(edge_index.t().tolist()) if tuple(pair) not in chosen]
        with torch.no_grad():
            row = net(data.x, edge_index[:, stay], data.edge_type[stay])[e.key].softmax(0)
        assert e.probabilities_without == pytest.approx(row.tolist(), abs=1e-5)


@pytest.mark.parametrize("method", ["cf2", "gradient"])
def test_relations_as_types_are_units_of_their_own(method: str) -> None:
    """Parallel edges of two relations, joined again in a `call`."""
    made = torch.Generator().manual_seed(3)
    ends = torch.randint(0, 9, (2, 24), generator=made)
    ends = torch.unique(ends[:, ends[0] != ends[1]], dim=1)
    parts = [ends, ends[:, ::2], ends[:, 1::3]]  # every edge of a later relation is one of the first, too
    data = HeteroData()
    data["node"].x = torch.randn(9, 4, generator=made)
    for number, part in enumerate(parts):
        data["node", str(number), "node"].edge_index = part

    def joined(net: nn.Module, batch: Any) -> Tensor:
        given = list(batch.edge_index_dict.values())
        kinds = torch.repeat_interleave(torch.tensor([one.size(1) for one in given]))
        return net(batch["node"].x, torch.cat(given, 1), kinds)  # type: ignore[no-any-return]

    net = Relations()
    found = cf2.explain(net, data, range(9), node_type="node", call=joined, method=method, directed=True)
    assert any(len(np.unique(e.units.ids, axis=0)) < len(e.units.ids) for e in found), "two units between two nodes"
    assert any(np.ptp(e.scores) > 0 for e in found if len(e.units) > 1), "soft masks reach each relation"
    for e in found:
        chosen = {(kind[1], *pair) for kind, pairs in e.edges.items() for pair in pairs.tolist()}
        left = [[pair for pair in part.t().tolist() if (str(n), *pair) not in chosen] for n, part in enumerate(parts)]
        kinds = torch.tensor([n for n, part in enumerate(left) for _ in part], dtype=torch.long)
        columns = torch.tensor([pair for part in left for pair in part], dtype=torch.long).view(-1, 2).t()
        with torch.no_grad():
            row = net(data["node"].x, columns, kinds)[e.key].softmax(0)
        assert e.probabilities_without == pytest.approx(row.tolist(), abs=1e-5)


class Han(nn.Module):
    """HANConv weighs relations by a mean over all nodes of a type, so an output has no smaller graph."""

    def __init__(self, data: HeteroData) -> None:
        super().__init__()
        torch.manual_seed(0)
        self.conv, self.head = HANConv(-1, 8, data.metadata(), heads=2), nn.Linear(8, 3)
        with torch.no_grad():  # no class is the one of most nodes, nor that of an empty graph
            self.head.bias -= self(data.x_dict, data.edge_index_dict).mean(0) / 20

    def forward(self, x_dict: Any, edge_index_dict: Any) -> Tensor:
        return self.head(self.conv(x_dict, edge_index_dict)["item"]) * 20


@pytest.mark.parametrize("method", ["cf2", "gnnexplainer"])
def test_a_model_that_averages_over_all_nodes_is_run_on_the_whole_graph(method: str) -> None:
    data = graph()
    net = Han(data).eval()
    settings = {"effort": "quick"} if method == "cf2" else {"epochs": 20, "lr": 0.1}
    columns = {kind: data[kind].edge_index for kind in data.edge_types}
    found = cf2.explain(net, data, range(4), node_type="item", method=method, **settings)
    for e in found:
        mask = e.edge_mask(columns)
        for keep, said in ((None, e.probabilities), (True, e.probabilities_only), (False, e.probabilities_without)):
            part = {
                kind: ends if keep is None else ends[:, (torch.as_tensor(mask[kind]) > 0) == keep]
                for kind, ends in columns.items()
            }
            with torch.no_grad():
                row = net(data.x_dict, part)[e.key].softmax(0)
            assert said == pytest.approx(row.tolist(), abs=1e-4)
    assert any(e.sufficient and e.necessary and e.size for e in found)


@pytest.mark.parametrize(
    ("options", "words"),
    [
        ({"nodes": [0]}, "Expected `node_type`, one of user, item, tag"),
        ({"nodes": [0], "node_type": "usr"}, "Did you mean 'user'"),
        ({"nodes": [7], "node_type": "user"}, "from 0 to 4"),
        ({"pairs": [(0, 0)]}, "Expected `edge_type`"),
        ({"pairs": [(0, 0)], "edge_type": ("user", "likes", "itm")}, "Did you mean 'item'"),
        ({"pairs": [(0, 4)], "edge_type": LIKES}, "second number of every pair"),
        ({"nodes": [0], "node_type": "user", "edge_type": "likes"}, "source, relation, destination"),
    ],
)
def test_bad_types_are_refused_in_words(options: dict[str, Any], words: str) -> None:
    with pytest.raises(cf2.CF2Error, match=words):
        cf2.explain(model("sage"), graph(), **options)


def test_types_of_a_graph_without_any_are_refused() -> None:
    data = Data(x=torch.ones(3, 2), edge_index=torch.tensor([[0, 1], [1, 2]]))
    with pytest.raises(cf2.CF2Error, match="HeteroData for `node_type`"):
        cf2.explain(model("sage"), data, [0], node_type="user")


# -- results ----------------------------------------------------------------------------------------------------------


def test_results_are_in_the_users_types(tmp_path: Path) -> None:
    data = graph(1)
    found = cf2.explain(model("graph", 3, 3), data, range(5), node_type="user", effort="quick")
    some = [e for e in found if e.size]
    assert some
    for e in some:
        rest, _ = without(data, e, e.selected)
        for kind in data.edge_types:
            there, left = (set(zip(*part[kind].edge_index.tolist())) for part in (data, rest))
            assert {tuple(pair) for pair in e.edges.get(kind, np.zeros((0, 2))).tolist()} == there - left
        masks = e.edge_mask(data.edge_index_dict)
        assert {k: int(m.sum()) for k, m in masks.items() if m.any()} == {k: len(p) for k, p in e.edges.items()}
        assert sum(chosen for chosen, _ in e.by_type().values()) == e.size
        assert "Types:" in e.summary()
        assert all(name in data.node_types for name in e.nodes)
        chosen = [facts for *_, facts in e.to_networkx().edges(data=True) if facts["chosen"]]
        assert len(chosen) == sum(map(len, e.edges.values()))
        assert e.plot() is not None
    table = found.types()
    assert table.chosen.sum() == sum(e.size for e in found)
    assert set(table.type) <= set(data.edge_types)
    assert isinstance(found.to_pandas().edges[found.items.index(some[0])], dict)
    page = found.report(tmp_path / "typed.html").read_text(encoding="utf-8")
    assert "user 0" in page
    assert ">item<" in page
    assert "–likes→" in page


def test_truth_is_by_type(tmp_path: Path) -> None:
    (e,) = cf2.explain(model("graph", 3, 1), graph(1), [0], node_type="user", effort="quick")
    assert e.size
    perfect = cf2.metrics.truth([e], [e.edges])
    assert (perfect["pr"], perfect["re"], perfect["acc"]) == (1, 1, 1)
    mirrored = {kind: pairs for kind, pairs in e.edges.items() if kind != LIKES}
    assert cf2.metrics.truth([e], [mirrored]) == perfect, "the mirror image is the same unit"
    named = {",".join(kind): pairs.tolist() for kind, pairs in e.edges.items()}
    assert cf2.metrics.truth([e], {0: named}) == perfect
    none = cf2.metrics.truth([e], [{HAS: [(2, 2)]}])
    assert none["pr"] == 0
    with pytest.raises(cf2.CF2Error, match="by edge type"):
        cf2.metrics.truth([e], [[(0, 1)]])
    page = cf2.Explanations((e,), {"truth": {"0": named}}).report(tmp_path / "truth.html")
    assert 'class="cf2-true"' in page.read_text(encoding="utf-8")


def test_a_typed_node_gets_what_it_gets_alone_and_the_data_stay_as_they_were() -> None:
    data, net = graph(2), model("graph", 3, 2)
    before = data.clone()
    together = cf2.explain(net, data, range(5), node_type="user", units="edges,features", effort="quick")
    alone = [
        cf2.explain(net, before, [e.key], node_type="user", units="edges,features", effort="quick") for e in together
    ]
    assert [e.selected.tolist() for e in together] == [e.selected.tolist() for (e,) in alone]
    assert all(torch.equal(data[name].x, before[name].x) for name in data.node_types)
    assert all(torch.equal(data[kind].edge_index, before[kind].edge_index) for kind in data.edge_types)
    assert data.metadata() == before.metadata()


# -- edits ------------------------------------------------------------------------------------------------------------


def coloured(seed: int) -> HeteroData:
    """The toy graph; users have a colour of three and a number, items two switches, tags numbers."""
    data, stream = graph(seed), torch.Generator().manual_seed(seed)
    data["user"].x = torch.eye(4)[torch.randint(0, 3, (5,), generator=stream)]
    data["user"].x[:3, :3] = torch.eye(3)  # every colour occurs
    data["user"].x[:, 3] = torch.linspace(-1, 1, 5)
    data["item"].x = torch.tensor([[0.0, 1], [1, 1], [1, 0], [0, 0]])
    return data


def rebuilt(data: HeteroData, edits: list[tuple[Any, ...]]) -> HeteroData:
    """A copy with edits made one by one, mirror images with them."""
    made = data.clone()
    for sort, place, *more in edits:
        kind = more[-1]
        if sort == "change":
            made[kind].x[place[0], place[1]] = more[1]
            continue
        for one, ends in mirrored(kind, *place):
            pairs = [tuple(pair) for pair in made[one].edge_index.t().tolist()]
            assert (ends in pairs) == (sort == "remove")
            pairs = [pair for pair in pairs if pair != ends] if sort == "remove" else [*pairs, ends]
            made[one].edge_index = torch.tensor(pairs, dtype=torch.long).reshape(-1, 2).t()
    return made


def one_unit(e: cf2.Explanation, row: int) -> list[tuple[Any, ...]]:
    """What one unit of an explanation does, by its row in the table of units."""
    types, name = e.types, e.units.names[e.units.kind[row]]
    assert types is not None
    starts = dict(zip(types.nodes, types.starts))

    def local(node: int) -> tuple[str, int]:
        kind = max((start, name) for name, start in starts.items() if start <= node)[1]
        return kind, node - starts[kind]

    one, other = e.units.ids[row].tolist()
    if name in ("edges", "added_edges"):
        sort = "remove" if name == "edges" else "add"
        return [(sort, (local(one)[1], local(other)[1]), types.edges[e.units.types[row]])]
    source, old, new = e.units.values[row].tolist()
    kind, node = local(one)
    made: list[tuple[Any, ...]] = [("change", (node, other), old, new, kind)]
    return made + ([("change", (node, int(source)), 1.0, 0.0, kind)] if source >= 0 else [])


def answered(net: nn.Module, data: HeteroData, level: str) -> int:
    return int(says(net, data, level, 0).argmax())


def explained(net: nn.Module, data: HeteroData, level: str, **options: Any) -> cf2.Explanation:
    where: dict[str, Any] = {"nodes": [0], "node_type": "user"} if level == "node" else {"level": "graph"}
    (e,) = cf2.explain(net, data, question="counterfactual", **where, **options)
    return e


SORTS = [("add",), ("change",), ("remove", "add"), ("remove", "add", "change")]


@settings(max_examples=40, deadline=None)
@given(st.data())
def test_every_claim_is_true_of_the_whole_typed_graph(draw: Any) -> None:
    seed, sorts = draw.draw(st.integers(0, 10**4)), draw.draw(st.sampled_from(SORTS))
    level, kind = draw.draw(st.sampled_from(["node", "graph"])), draw.draw(st.sampled_from(["sage", "graph", "gat"]))
    data, net = coloured(seed), model(kind, seed=seed)
    options = {"candidates": draw.draw(st.sampled_from(["near", "target", "far", None]))} if level == "node" else {}
    e = explained(net, data, level, edits=sorts, **options)
    assert e.prediction == answered(net, data, level)
    if e.status == "empty":
        return
    made = rebuilt(data, e.edits)
    assert e.necessary == (answered(net, made, level) != e.prediction)
    assert (e.status == "found") == e.necessary
    applied = e.apply(data)
    for name in data.node_types:
        assert torch.equal(applied[name].x, made[name].x)
    for name in data.edge_types:
        assert set(zip(*applied[name].edge_index.tolist())) == set(zip(*made[name].edge_index.tolist()))
    chosen = [row for row, inside in enumerate(e.selected.tolist()) if inside]
    assert sorted(map(str, e.edits)) == sorted(str(edit) for row in chosen for edit in one_unit(e, row))
    if e.status == "found":
        for left_out in chosen:
            rest = [edit for row in chosen if row != left_out for edit in one_unit(e, row)]
            assert answered(net, rebuilt(data, rest), level) == e.prediction
    proved = e.size if e.optimal else int(e.lower_bound or 0)
    for count in range(min(proved, 2 if e.num_units > 60 else 3)):
        for rows in combinations(range(e.num_units), count):
            edits = [edit for row in rows for edit in one_unit(e, row)]
            places = [(edit[1], edit[-1]) for edit in edits if edit[0] == "change"]
            if len(set(places)) == len(places):
                assert answered(net, rebuilt(data, edits), level) == e.prediction


def test_candidates_are_the_absent_pairs_of_every_known_type() -> None:
    data = coloured(1)
    e = explained(model("sage"), data, "graph", edits="add")
    found = [one_unit(e, row)[0] for row in range(e.num_units)]
    assert len(set(found)) == len(found)
    counts = {"user": 5, "item": 4, "tag": 3}
    for kind in (LIKES, SEES, HAS, KNOWS):
        there = {tuple(pair) for pair in data[kind].edge_index.t().tolist()}
        every = {(u, v) for u in range(counts[kind[0]]) for v in range(counts[kind[2]])} - there
        if kind == KNOWS:
            every = {(u, v) for u, v in every if u < v}
        assert {edit[1] for edit in found if edit[2] == kind} == every
    assert not [edit for edit in found if edit[2] == BACK], "a mirror image is no edit of its own"


def test_candidates_at_the_target_join_it() -> None:
    data = coloured(1)
    for given_candidates in ("target", "far"):
        e = explained(model("sage"), data, "node", edits="add", candidates=given_candidates)
        for row in range(e.num_units):
            (_, ends, kind), *_ = one_unit(e, row)
            assert (kind[0], ends[0]) == ("user", 0) or (kind[2], ends[1]) == ("user", 0)


def test_an_atom_of_a_type_changes_within_its_type() -> None:
    e = explained(model("sage"), coloured(1), "graph", edits="change")
    columns: dict[str, set[int]] = {}
    for row in range(e.num_units):
        for _, (_, column), old, new, kind in one_unit(e, row):
            columns.setdefault(kind, set()).add(column)
            assert old != new
            if kind == "item":
                assert {old, new} == {0.0, 1.0}
    assert columns["user"] == {0, 1, 2, 3}
    assert columns["item"] == {0, 1}
    assert columns["tag"] == {0, 1, 2}


def test_added_edges_have_the_commonest_attribute_of_their_type() -> None:
    data = coloured(0)
    data[LIKES].edge_attr = torch.tensor([[2.0], [2.0], [1.0], [2.0], [1.0], [2.0]])
    data[SEES].edge_attr = torch.tensor([[7.0], [7.0]])
    targets = GraphTargets([data])
    editing = Editing.of(Spec(question="counterfactual", edits=("add",)), targets)
    assert editing is not None
    made = editing.prepared(targets.instance(0), lambda nodes: targets.instance(0))
    assert made.types is not None
    assert made.role is not None
    new = made.role == 1
    kinds, rows = made.extras["edge_type"][1][new], made.extras["edge_attr"][1][new]
    for place, kind in enumerate(made.types.edges):
        expected = {LIKES: 2.0, SEES: 7.0}.get(kind, 0.0)
        assert (rows[kinds == place] == expected).all()
        assert bool((kinds == place).any())


def test_words_files_and_mistakes(tmp_path: Path) -> None:
    data, net = coloured(2), model("sage", seed=2)
    found = cf2.explain(
        net, data, nodes=range(5), node_type="user", question="counterfactual", edits=("remove", "add", "change")
    )
    found.save(tmp_path / "found.json")
    loaded = cf2.load(tmp_path / "found.json")
    assert [e.edits for e in loaded] == [e.edits for e in found]
    for e in found:
        assert e.summary()
        assert e.by_type()
        e.plot()
    found.report(tmp_path / "page.html")
    with pytest.raises(cf2.CF2Error, match="pairs without a type"):
        explained(net, data, "node", edits="add", candidates=[(0, 1)])
    with pytest.raises(cf2.CF2Error, match="columns without a type"):
        explained(net, data, "node", edits="change", one_hot=[(0, 1, 2)])
    with pytest.raises(cf2.CF2Error, match="HeteroData"):
        found[0].apply(torch.zeros(3))
