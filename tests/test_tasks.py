"""Links, numbers, labels and any forward, by brute force: verdicts are true of the *full* graph.

Nothing in the checks shares code with the package: chosen units are taken out of the whole graph by hand, and the model
is called as its author would.
"""

from __future__ import annotations

from collections.abc import Iterable
from itertools import combinations
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor, nn
from torch_geometric.data import Data
from torch_geometric.nn import GCN, GCNConv, GraphConv, SAGEConv, global_add_pool

import cf2
import typed_toys
from cf2.runs.session import ModelCache, Session
from toys import Unit, edited, random_graph, same_answer, same_results


class Net(nn.Module):
    """Two layers; nodes, pairs or graphs by what is passed; the width of the output is given."""

    def __init__(self, width: int, seed: int = 0, scale: float = 1.0) -> None:
        super().__init__()
        torch.manual_seed(seed)
        self.first, self.second = GraphConv(3, 8), SAGEConv(8, 8)
        self.head, self.scale = nn.Linear(8, width), scale

    def encode(self, x: Tensor, edge_index: Tensor) -> Tensor:
        return self.second(self.first(x, edge_index).relu(), edge_index)

    def forward(
        self, x: Tensor, edge_index: Tensor, edge_label_index: Tensor | None = None, batch: Tensor | None = None
    ) -> Tensor:
        z = self.encode(x, edge_index)
        if edge_label_index is not None:
            z = z[edge_label_index[0]] * z[edge_label_index[1]]
        elif batch is not None:
            z = global_add_pool(z, batch)
        return self.head(z) * self.scale


def graph(seed: int = 0, nodes: int = 9, edges: int = 9) -> Data:
    return random_graph(nodes, edges, features=3, seed=seed)


def without_pair(data: Data, u: int, v: int) -> Data:
    pairs = data.edge_index.t().tolist()
    stay = [number for number, pair in enumerate(pairs) if pair not in ([u, v], [v, u])]
    return Data(x=data.x, edge_index=data.edge_index[:, stay])


class Task:
    """One prediction of a task: how it is asked for, and what the model says of an edited graph."""

    def __init__(self, level: str, data: Data, key: Any, model: Net, leave_out: bool = True) -> None:
        self.level, self.key, self.model = level, key, model
        self.data = without_pair(data, *key) if level == "pair" and leave_out else data

    def says(self, data: Data) -> Tensor:
        with torch.no_grad():
            if self.level == "node":
                return self.model(data.x, data.edge_index)[self.key]
            if self.level == "pair":
                return self.model(data.x, data.edge_index, torch.tensor([self.key]).t())[0]
            if "left" in data:  # the nodes themselves are gone, so that a pool does not count them
                data = data.subgraph(data.left)
            if not data.num_nodes:
                return torch.full((self.model.head.out_features,), torch.nan)
            return self.model(data.x, data.edge_index, batch=torch.zeros(data.x.size(0), dtype=torch.long))[0]


OUTPUTS: dict[str, tuple[int, dict[str, Any]]] = {
    "classes": (3, {"output": "logits"}),
    "one logit": (1, {"output": "logits"}),
    "labels": (4, {"output": "multilabel_logits", "target": 2}),
    "number": (1, {"output": "regression", "tolerance": 0.15}),
    "numbers": (3, {"output": "regression", "target": 1, "tolerance": 0.1}),
}
KEYS = {"node": [0, 3, 5], "pair": [(0, 3), (2, 2), (4, 7)], "graph": [0]}


def units_of(e: cf2.Explanation) -> list[tuple[str, tuple[int, int]]]:
    names = [e.units.names[kind] for kind in e.units.kind]
    return [(name, (int(a), int(b))) for name, (a, b) in zip(names, e.units.ids.tolist())]


def check(task: Task, e: cf2.Explanation, asked: dict[str, Any]) -> None:
    """Both verdicts, and for small instances the status, are what brute force over the full graph says."""
    units, whole = units_of(e), task.says(task.data)
    chosen = {unit for unit, inside in zip(units, e.selected) if inside}

    def gives(gone: Iterable[Unit], same: bool) -> bool | None:
        """Whether the answer without some units is the same, or another; of no nodes the model says nothing."""
        row = task.says(edited(task.data, gone))
        holds = same_answer(asked, whole, row)
        return False if bool(row.isnan().any()) else None if holds is None else holds == same

    for gone, same, verdict in ((set(units) - chosen, True, e.sufficient), (chosen, False, e.necessary)):
        assert gives(gone, same) in (None, verdict)
    if len(units) > 6 or e.status not in ("found", "impossible"):
        return
    sets = [set(some) for size in range(len(units) + 1) for some in combinations(units, size)]
    passing = [len(some) for some in sets if gives(set(units) - some, True) and gives(some, False)]
    if e.status == "found" and e.optimal:
        assert e.size == min(passing)
    if e.status == "impossible":
        assert not passing


@pytest.mark.parametrize("units", ["edges", "features", "node_features", "edges,node_features", "columns", "nodes"])
@pytest.mark.parametrize("output", OUTPUTS)
@pytest.mark.parametrize("level", KEYS)
def test_verdicts_are_true_of_the_full_graph(level: str, output: str, units: str) -> None:
    width, asked = OUTPUTS[output]
    data, model = graph(1), Net(width, 1, 3.0)
    keys = {"node": {"nodes": KEYS[level]}, "pair": {"pairs": KEYS[level]}}.get(level, {"level": "graph"})
    found = cf2.explain(model, data, **keys, **asked, units=units, effort="quick", epochs=2)
    assert [e.key for e in found] == KEYS[level]
    for e in found:
        assert e.task == level
        check(Task(level, data, e.key, model), e, asked)


@pytest.mark.parametrize("output", OUTPUTS)
def test_sets_that_pass_are_found_for_every_output(output: str) -> None:
    """The brute force above compares something."""
    width, asked = OUTPUTS[output]
    many = cf2.explain(Net(width, 1, 3.0), graph(1), list(range(9)), **asked, effort="quick", epochs=2)
    assert any(e.status == "found" and e.size for e in many)
    assert any(e.status in ("impossible", "not found") for e in many) or output != "classes"


# -- pairs ------------------------------------------------------------------------------------------------------


def test_the_pairs_own_edge_is_left_out_or_a_unit() -> None:
    data, model = graph(1), Net(1, 1, 3.0)
    u, v = next((a, b) for a, b in data.edge_index.t().tolist() if a != b)
    (left,) = cf2.explain(model, data, pairs=[(u, v)], output="logits")
    (there,) = cf2.explain(model, data, pairs=[(u, v)], output="logits", leave_out_pair=False)
    own = sorted((u, v))
    assert own not in left.units.of("edges").tolist()
    assert own in there.units.of("edges").tolist()
    for e, leave_out in ((left, True), (there, False)):
        task = Task("pair", data, (u, v), model, leave_out)
        p = torch.sigmoid(task.says(task.data)).item()
        assert e.probabilities == pytest.approx([1 - p, p], abs=1e-5)
        check(task, e, {"output": "logits"})


def test_of_a_directed_pair_only_its_own_direction_is_left_out() -> None:
    data = Data(x=torch.randn(4, 3), edge_index=torch.tensor([[0, 1, 2, 3, 1], [1, 0, 1, 0, 3]]))
    (e,) = cf2.explain(Net(2, 1), data, pairs=[(0, 1)], method="gradient", k=1)
    assert e.directed
    assert [0, 1] not in e.units.of("edges").tolist()
    assert [1, 0] in e.units.of("edges").tolist()


PAIRS = [(0, 3), (4, 7), (5, 5)]


@pytest.mark.parametrize(
    ("pairs", "keys"),
    [
        (PAIRS, PAIRS),
        (np.array(PAIRS), PAIRS),
        (torch.tensor(PAIRS).t(), PAIRS),
        (torch.tensor(PAIRS), PAIRS),
        (([0, 3], [4, 7], (np.int64(5), torch.tensor(5))), PAIRS),
        ((0, 3), [(0, 3)]),
    ],
)
def test_pairs_come_in_every_shape(pairs: Any, keys: list[tuple[int, int]]) -> None:
    found = cf2.explain(Net(2, 1), graph(1), pairs=pairs, method="gradient", k=1)
    assert [e.key for e in found] == keys
    assert found.at(keys[-1]).key == keys[-1]


@pytest.mark.parametrize(
    ("pairs", "words"),
    [
        ([], "at least one pair"),
        ([(0, 9)], "second number of every pair"),
        ([(-1, 2)], "first number of every pair"),
        *[(wrong, "pairs of node ids") for wrong in ([(0, 1, 2)], [0, 1, 2], torch.rand(3, 2), [(0.5, 1)], "ab", 7)],
    ],
)
def test_bad_pairs_are_refused_in_words(pairs: Any, words: str) -> None:
    with pytest.raises(cf2.CF2Error, match=words):
        cf2.explain(Net(2, 1), graph(1), pairs=pairs)
    with pytest.raises(cf2.CF2Error, match="either `nodes` or `pairs`"):
        cf2.explain(Net(2, 1), graph(1), [1], pairs=pairs)


def test_true_labels_of_pairs_come_from_edge_label() -> None:
    data = graph(1)
    data.edge_label_index, data.edge_label = torch.tensor([[0, 4], [3, 7]]), torch.tensor([1.0, 0.0])
    found = cf2.explain(Net(2, 1), data, pairs=[(0, 3), (4, 7), (1, 2)], method="gradient", k=1)
    assert [e.label for e in found] == [1, 0, None]


def test_a_pair_packed_with_others_gets_what_it_gets_alone() -> None:
    data, model, pairs = graph(2, 14, 20), Net(2, 2, 3.0), [(0, 3), (4, 7), (5, 9), (2, 13)]
    together = cf2.explain(model, data, pairs=pairs, effort="quick")
    alone = [cf2.explain(model, data, pairs=[pair], effort="quick")[0] for pair in pairs]
    assert [e.chosen("edges").tolist() for e in together] == [e.chosen("edges").tolist() for e in alone]


def test_a_link_model_that_looks_at_the_whole_graph_is_given_all_of_it() -> None:
    class Global(Net):
        def forward(self, x: Tensor, edge_index: Tensor, edge_label_index: Tensor) -> Tensor:  # type: ignore[override]
            return super().forward(x - x.mean(0), edge_index, edge_label_index)

    model, data = Global(2, 2).eval(), graph(2, 20, 24)
    own = tuple(data.edge_index[:, 0].tolist())
    for e in cf2.explain(model, data, pairs=[own, (4, 7)], effort="quick"):
        left = without_pair(data, *e.key)
        ends = [frozenset(pair) for pair in left.edge_index.t().tolist()]
        assert len(e.units) == len({pair for pair in ends if len(pair) == 2})  # a loop is no unit
        chosen = {frozenset(pair) for pair in e.edges.tolist()}
        mine, loop = torch.tensor([pair in chosen for pair in ends]), torch.tensor([len(pair) == 1 for pair in ends])
        for stay, said in ((mine | loop, e.probabilities_only), (~mine, e.probabilities_without)):
            with torch.no_grad():
                row = model(left.x, left.edge_index[:, stay], torch.tensor(e.key)[:, None])[0].softmax(0)
            assert said == pytest.approx(row.tolist(), abs=1e-4)


# -- call -------------------------------------------------------------------------------------------------------


class Encoder(nn.Module):
    """Returns a tuple, and takes its arguments in another order."""

    def __init__(self) -> None:
        super().__init__()
        torch.manual_seed(4)
        self.first, self.second = GCNConv(3, 6), GCNConv(6, 3)

    def forward(self, edges: Tensor, features: Tensor) -> tuple[Tensor, None]:
        return self.second(self.first(features, edges).relu(), edges), None


def test_call_answers_for_tuples_and_unusual_orders() -> None:
    model, data = Encoder(), graph(3)
    with pytest.raises(cf2.CF2Error, match="call="):
        cf2.explain(model, data, [1])
    with pytest.raises(cf2.CF2Error, match=r"edge_label_index.*call="):
        cf2.explain(GCN(3, 8, 2, 2), data, pairs=[(0, 1)])
    found = cf2.explain(model, data, [1, 4], call=lambda model, batch: model(batch.edge_index, batch.x)[0])
    by_target = cf2.explain(
        model, data, [1, 4], call=lambda model, batch: model(batch.edge_index, batch.x)[0][batch.index]
    )
    assert same_results(list(found), list(by_target))
    for e in found:
        whole = model(data.edge_index, data.x)[0][e.key].softmax(0)
        assert torch.allclose(torch.from_numpy(e.probabilities), whole.detach(), atol=1e-5)


def test_a_tuple_is_refused_with_the_cure() -> None:
    class Two(Net):
        def forward(self, x: Tensor, edge_index: Tensor) -> tuple[Tensor, Tensor]:  # type: ignore[override]
            return super().forward(x, edge_index), x

    with pytest.raises(cf2.CF2Error, match=r"tuple.*call=lambda"):
        cf2.explain(Two(2), graph(), [1])
    (e,) = cf2.explain(Two(2), graph(), [1], call=lambda model, batch: model(batch.x, batch.edge_index)[0])
    assert e.key == 1


def test_call_decodes_pairs_and_pools_graphs() -> None:
    data, model = graph(3), Net(2, 3, 3.0)

    def decode(model: Any, batch: Any) -> Tensor:
        z = model.encode(batch.x, batch.edge_index)
        a, b = batch.edge_label_index
        return model.head(z[a] * z[b]) * model.scale

    def pool(model: Any, batch: Any) -> Tensor:
        return model.head(global_add_pool(model.encode(batch.x, batch.edge_index), batch.batch)) * model.scale

    pairs = [(0, 3), (4, 7)]
    assert same_results(
        list(cf2.explain(model, data, pairs=pairs)), list(cf2.explain(model, data, pairs=pairs, call=decode))
    )
    graphs = [graph(seed) for seed in range(3)]
    assert same_results(list(cf2.explain(model, graphs)), list(cf2.explain(model, graphs, call=pool)))


def test_a_call_is_checked_as_any_model(caplog: pytest.LogCaptureFixture) -> None:
    model, data = Encoder(), graph(3)
    with pytest.raises(cf2.CF2Error, match="same output for the same graph"):
        cf2.explain(model, data, [1], call=lambda m, b: m(b.edge_index, b.x + torch.rand_like(b.x))[0])
    cf2.explain(model, data, [1], call=lambda m, b: m(b.edge_index, b.x)[0] * (1 + b.x.mean()))
    assert "depends on what else is in the batch" in caplog.text  # each graph is then run by itself
    with pytest.raises(cf2.CF2Error, match="not to modify its input"):
        cf2.explain(model, data, [1], call=lambda m, b: m(b.edge_index, b.x.mul_(2))[0])
    with pytest.raises(cf2.CF2Error, match="one row per"):
        cf2.explain(model, data, [1], call=lambda m, b: m(b.edge_index, b.x)[0][:2])
    with pytest.raises(cf2.CF2Error, match="`call` to be a function"):
        cf2.explain(model, data, [1], call=3)  # type: ignore[arg-type]


@pytest.mark.parametrize("typed", [False, True])
def test_what_is_wrong_with_a_call_is_said_of_the_call(typed: bool) -> None:
    """And nobody who has a `call` is told to pass one."""
    given: dict[str, Any] = {"nodes": [1], "node_type": "user"} if typed else {"nodes": [1]}
    model, data = (typed_toys.model(), typed_toys.graph()) if typed else (Net(2), graph())
    for call, words in (
        (lambda model, batch: batch.nothing, "Expected `call` to run on a graph"),
        (lambda model, batch: (torch.zeros(1, 2),), "Expected `call` to return a tensor, but got tuple"),
        (lambda model, batch: torch.zeros(1, 2, 2, 2), "Expected `call` to return one row per node"),
    ):
        with pytest.raises(cf2.CF2Error, match=words) as caught:
            cf2.explain(model, data, **given, call=call)
        assert "call=" not in str(caught.value)


def test_edge_attributes_reach_a_call() -> None:
    torch.manual_seed(0)
    data, model = graph(3), GraphConv(3, 2)
    data.edge_attr = torch.rand(data.edge_index.size(1), 1)
    (e,) = cf2.explain(model, data, [4], call=lambda m, b: m(b.x, b.edge_index, b.edge_attr[:, 0]))
    row = model(data.x, data.edge_index, data.edge_attr[:, 0])[4].softmax(0)
    assert torch.allclose(torch.from_numpy(e.probabilities), row.detach(), atol=1e-5)


# -- numbers and labels -------------------------------------------------------------------------------------------


def test_the_tolerance_is_a_tenth_of_the_range_of_the_predictions() -> None:
    data, model = graph(2, 20, 30), Net(1, 2, 3.0)
    found = cf2.explain(model, data, list(range(20)), output="regression", effort="quick")
    said = model(data.x, data.edge_index).detach().flatten()
    assert [e.tolerance for e in found] == pytest.approx([0.1 * float(said.max() - said.min())] * 20, rel=1e-4)
    assert [e.value for e in found] == pytest.approx(said.tolist(), abs=1e-4)


REGRESSION, LABELS = {"output": "regression", "tolerance": 1}, {"output": "multilabel_logits"}


@pytest.mark.parametrize(
    ("width", "asked", "said"),
    [
        (1, {"output": "regression"}, "tolerance="),
        *[(1, REGRESSION | {"tolerance": bad}, "tolerance") for bad in (0, -1, "much", float("nan"), float("inf"))],
        *[(3, asked, "Expected `target`") for asked in (REGRESSION, LABELS)],
        *[(3, asked | {"target": 3}, "from 0 to 2") for asked in (REGRESSION, LABELS)],
        *[
            (3, {"output": output, "target": 1, "tolerance": 0.1}, f"=\"regression\" for `tolerance`.*'{output}'")
            for output in ("auto", "logits", "multilabel_logits")
        ],
    ],
)
def test_a_target_or_tolerance_that_an_output_cannot_have_is_refused(width: int, asked: Any, said: str) -> None:
    with pytest.raises(cf2.CF2Error, match=said):
        cf2.explain(Net(width, 2), graph(2), [3], **asked)


def test_labels_may_differ_by_key() -> None:
    found = cf2.explain(Net(4, 2, 3.0), graph(2), [0, 3, 5], output="multilabel_logits", target={0: 1, 3: 2, 5: 0})
    assert [e.target for e in found] == [1, 2, 0] == [e.prediction for e in found]


def test_labels_that_could_be_logits_or_probabilities_are_not_guessed() -> None:
    class Sure(Net):
        def forward(self, *given: Any) -> Tensor:
            return super().forward(*given).sigmoid()

    with pytest.raises(cf2.CF2Error, match="multilabel_probabilities"):
        cf2.explain(Sure(4, 2), graph(2), [0, 3], output="multilabel", target=1)
    found = cf2.explain(Sure(4, 2, 3.0), graph(2), [0, 3], output="multilabel_probabilities", target=1)
    plain = cf2.explain(Net(4, 2, 3.0), graph(2), [0, 3], output="multilabel", target=1)
    assert [e.selected.tolist() for e in found] == [e.selected.tolist() for e in plain]


def test_auto_takes_neither_numbers_nor_labels_for_classes() -> None:
    data = graph(2)
    for y, width, output in ((torch.randn(9), 1, "regression"), (torch.ones(9, 4), 4, "multilabel")):
        data.y = y
        with pytest.raises(cf2.CF2Error, match=f'output="{output}"'):
            cf2.explain(Net(width, 2), data, range(9))


@pytest.mark.parametrize("method", ["cf2", "cf2-relaxed", "gnnexplainer", "cf-gnnexplainer", "gradient", "random"])
@pytest.mark.parametrize("output", OUTPUTS)
def test_every_method_answers_for_every_output(method: str, output: str) -> None:
    width, asked = OUTPUTS[output]
    data, model = graph(2), Net(width, 2, 3.0)
    settings = {"k": 2} if method in ("gnnexplainer", "gradient", "random") else {}
    for pair in ((0, 3), (4, 7)):
        task = Task("pair", data, pair, model)
        (e,) = cf2.explain(model, data, pairs=[pair], method=method, **asked, **settings)
        check(task, e, asked)
    assert method == "random" or len(set(e.scores.tolist())) > 1, "it ranks"


@pytest.mark.parametrize("method", ["pgexplainer", "gem"])
def test_trained_methods_learn_from_pairs_and_numbers(method: str) -> None:
    data, model, pairs = graph(2, 16, 24), Net(1, 2, 3.0), [(0, 3), (4, 7), (5, 9)]
    asked: dict[str, Any] = {"output": "regression", "tolerance": 0.2}
    trained = cf2.fit(model, data, pairs=[(1, 2), (8, 9), (3, 4)], method=method, **asked)
    found = cf2.explain(model, data, pairs=pairs, method=method, trained=trained, **asked)
    for e in found:
        task = Task("pair", data, e.key, model)
        check(task, e, asked)


# -- results -------------------------------------------------------------------------------------------------------


def test_numbers_and_labels_are_said_in_words(tmp_path: Path) -> None:
    data = graph(2)
    (number,) = cf2.explain(Net(1, 2, 3.0), data, pairs=[(0, 3)], output="regression", tolerance=0.15)
    assert f"within ±0.15 of {number.value:.4g}" in number.summary()
    assert cf2.explain(Net(1, 2, 3.0), data, [4], output="regression", tolerance=0.1).to_pandas().prediction[0] < 1e9
    (label,) = cf2.explain(Net(4, 2, 3.0), data, [0], output="multilabel", target=2)
    assert "label 2" in label.summary()
    assert "class" not in label.summary()
    for e in (number, label):
        assert e.plot() is not None
        page = cf2.Explanations((e,)).report(tmp_path / f"{e.output}.html").read_text(encoding="utf-8")
        assert "label 2" in page if e.output == "multilabel" else f"{e.value:.4g}" in page


def test_workers_use_the_tolerance_that_was_measured_once() -> None:
    from cf2.api import plan
    from cf2.runs.engines import explain_many

    data, model = graph(2, 20, 30), Net(1, 2, 3.0)
    request, keys = plan(ModelCache(model, data), range(20), None, {"output": "regression", "effort": "quick"})
    whole = explain_many(request, keys)
    parts = explain_many(request, keys, chunk_size=3)
    assert len({e.tolerance for e in whole}) == 1
    assert [e.tolerance for e in whole] == [e.tolerance for e in parts]
    with Session(request) as session:
        assert session.measure(keys).measured.tolerance == whole[0].tolerance  # type: ignore[union-attr]
