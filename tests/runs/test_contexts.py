"""`contexts=`: how surely a set decides, against graphs that are edited by hand; in files, words and metrics."""

from __future__ import annotations

import json
from dataclasses import replace
from itertools import combinations, product
from math import factorial
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
import torch
from torch import Tensor
from torch_geometric.data import Data
from torch_geometric.explain import Explanation as PygExplanation

import cf2
from cf2.results.explanation import Explanation
from cf2.results.files import ADDED, GONE
from cf2.runs import session
from cf2.runs.session import Session
from cf2.units.kinds import units_of
from toys import GraphNet, NodeNet, random_graph

GRAPHS = [random_graph(5, 6, seed=seed) for seed in range(6)]


def pairs_of(e: Explanation) -> list[tuple[int, int]]:
    return [tuple(pair) for pair in e.units.of("edges").tolist()]


def says(model: Any, data: Data, gone: set[tuple[int, int]]) -> int:
    """The class that the model gives to a graph without some undirected edges."""
    columns = [(min(u, v), max(u, v)) not in gone for u, v in data.edge_index.t().tolist()]
    with torch.no_grad():
        outputs: Tensor = model(data.x, data.edge_index[:, torch.tensor(columns)])
    return int(outputs.argmax(1)[0])


def by_hand(model: Any, data: Data, e: Explanation) -> tuple[float, float, list[set[tuple[int, int]]]]:
    """PS and PNS by running the model on every context, each built by hand; and what is gone where the answer is lost.

    The latter first of contexts with the whole set.
    """
    model.eval()
    chosen = {pair for pair, own in zip(pairs_of(e), e.selected) if own}
    outside = [pair for pair in pairs_of(e) if pair not in chosen]
    ps, pns, lost = 0.0, 0.0, (list[set[tuple[int, int]]](), list[set[tuple[int, int]]]())
    for bits in product([False, True], repeat=len(outside)):
        a, b = sum(bits), len(bits) - sum(bits)
        weight = factorial(a) * factorial(b) / factorial(a + b + 1)
        gone = {pair for pair, there in zip(outside, bits) if not there}
        kept, still = (says(model, data, part) == e.prediction for part in (gone, gone | chosen))
        ps += weight * kept
        pns += weight * (kept and not still)
        lost[0].extend([] if kept else [gone])
        lost[1].extend([] if still else [gone | chosen])
    return ps, pns, [*lost[0], *lost[1]]


@pytest.mark.parametrize("method", ["cf2", "random"])
def test_exact_values_are_those_of_graphs_edited_by_hand(method: str) -> None:
    model = GraphNet("sum", seed=5)
    found = cf2.explain(model, GRAPHS, method=method, contexts=64)
    assert any(e.pns is not None and 0 < e.pns[0] < 1 for e in found)
    for e in found:
        ps, pns, _ = by_hand(model, GRAPHS[int(e.key)], e)
        assert e.all_contexts
        assert e.contexts == 2 ** (e.num_units - e.size)
        assert e.ps == pytest.approx((ps,) * 3)
        assert e.pns == pytest.approx((pns,) * 3)
        assert e.pn == (pytest.approx((pns / ps,) * 3) if ps else None)


def test_contexts_are_counted_and_change_nothing_else() -> None:
    model = GraphNet("sum", seed=5)
    plain, measured = cf2.explain(model, GRAPHS), cf2.explain(model, GRAPHS, contexts=64)
    for one, other in zip(plain, measured):
        assert (one.ps, one.pn, one.pns, one.contexts) == (None, None, None, 0)
        assert one.evaluations < other.evaluations <= one.evaluations + 2 * other.contexts
        assert (one.selected == other.selected).all()
        assert (one.status, one.sufficient, one.necessary) == (other.status, other.sufficient, other.necessary)


def test_drawn_contexts_do_not_depend_on_packing_and_cover_the_exact_value() -> None:
    data, model = random_graph(14, 18, seed=5), NodeNet("sum", seed=0)
    keys = list(range(0, 14, 2))
    together = cf2.explain(model, data, keys, method="random", k=3, contexts=100)
    exact = cf2.explain(model, data, keys, method="random", k=3, contexts=100_000)
    assert any(not e.all_contexts for e in together)
    for e, true in zip(together, exact):
        (alone,) = cf2.explain(model, data, [e.key], method="random", k=3, contexts=100)
        assert (alone.ps, alone.pn, alone.pns) == (e.ps, e.pn, e.pns)
        if e.pns is not None:
            assert true.all_contexts
            assert e.pns[1] - 0.05 <= true.pns[0] <= e.pns[2] + 0.05  # type: ignore[index]
    other = cf2.explain(model, data, keys, method="random", k=3, contexts=100, seed=1)
    assert [e.pns for e in other] != [e.pns for e in together]


def test_an_answer_that_is_not_given_has_no_strength() -> None:
    model = GraphNet("sum", seed=5)
    said = cf2.explain(model, GRAPHS)[0].prediction
    (e,) = cf2.explain(model, GRAPHS[:1], target=1 - said, contexts=8)
    assert (e.status, e.ps, e.contexts) == ("not predicted", None, 0)


@pytest.mark.parametrize("ending", ["json", "parquet"])
def test_files_that_lack_strengths_or_have_what_is_gone_are_read(tmp_path: Path, ending: str) -> None:
    found = cf2.explain(GraphNet("sum", seed=5), GRAPHS, contexts=16)
    path = found.save(tmp_path / f"new.{ending}")
    old = tmp_path / f"old.{ending}"
    if ending == "json":
        stored = json.loads(path.read_text())
        stored.pop("digest")
        stored["explanations"] = [
            {name: value for name, value in row.items() if name not in ADDED} | {name: [2, 2] for name in GONE}
            for row in stored["explanations"]
        ]
        old.write_text(json.dumps(stored))
    else:
        table = pq.read_table(path)
        about = json.loads(table.schema.metadata[b"cf2"])
        about.pop("digest")
        table = table.drop_columns(list(ADDED)).replace_schema_metadata({b"cf2": json.dumps(about).encode()})
        for name in GONE:
            table = table.append_column(name, pa.array([[2, 2]] * len(found), pa.list_(pa.int64())))
        pq.write_table(table, old)
    read = cf2.load(old)
    assert [e.key for e in read] == [e.key for e in found]
    assert all((e.ps, e.contexts, e.all_contexts) == (None, 0, False) for e in read)


def test_metrics_tables_and_words_have_them_where_they_are() -> None:
    model, data = NodeNet("sum", seed=0), random_graph(14, 18, seed=5)
    plain = cf2.explain(model, data, [0, 2, 4])
    found = cf2.explain(model, data, [0, 2, 4], contexts=40)
    values = [e.pns[0] for e in found if e.pns is not None]
    assert cf2.metrics.pns(found) == pytest.approx(np.mean(values))
    assert np.isnan(cf2.metrics.pns(plain))
    assert "pns" not in plain.summary()
    assert "pns" not in plain.to_pandas()
    assert "How surely" not in plain[0].summary()
    assert found.summary()["pns"] == cf2.metrics.pns(found)
    low, high = cf2.metrics.evaluate(found)["intervals"]["pns"]
    assert low <= cf2.metrics.pns(found) <= high
    assert found.to_pandas()["pns"].tolist() == [e.pns and e.pns[0] for e in found]
    drawn = next(e for e in found if e.contexts == 40 and not e.all_contexts)
    assert drawn.ps is not None
    assert f"holds in {round(drawn.ps[0] * 40)} of 40 contexts" in drawn.summary()


def test_a_sure_set_is_verified_by_hand_and_says_what_was_reached() -> None:
    model = GraphNet("sum", seed=5)
    graphs = [random_graph(6, 8, seed=seed) for seed in range(12)]
    plain, found = cf2.explain(model, graphs, contexts=256), cf2.explain(model, graphs, surely=0.8)
    assert {e.status for e in found} >= {"found", "not found"}
    assert any(e.size > first.size for first, e in zip(plain, found))
    for first, e in zip(plain, found):
        if first.status != "found":
            assert (e.status, e.curve) == (first.status, ())
            continue
        ps, pns, _ = by_hand(model, graphs[int(e.key)], e)
        assert e.pns == pytest.approx((pns,) * 3)
        assert e.always == (ps > 1 - 1e-9)
        assert e.size >= first.size
        assert e.sufficient
        assert e.necessary
        assert (e.status == "found") == (pns >= 0.8)
        if e.status != "found":
            assert f"It decides in {pns:.2f} of contexts" in e.summary()
        assert e.size in dict(e.curve)


def test_always_is_unknown_until_all_contexts_or_one_counterexample() -> None:
    model = GraphNet("sum", seed=5)
    (e,) = cf2.explain(model, GRAPHS[:1], contexts=0)
    assert e.always is None
    e = replace(e, ps=(1.0, 0.9, 1.0), all_contexts=False)
    assert e.always is None
    assert replace(e, all_contexts=True).always is True
    assert replace(e, ps=(0.99, 0.9, 1.0)).always is False


def test_a_context_in_which_a_set_fails_is_shown_and_bounds_what_never_does() -> None:
    model, graphs = NodeNet("gcn", seed=1), [random_graph(6, 7, seed=seed) for seed in range(8)]
    bounds, shown = set(), 0
    for graph in graphs:
        for e in cf2.explain(model, graph, range(6), units="edges", method="random", k=2, contexts=64):
            if e.pns is None:
                continue
            lost = by_hand(NodeOf(model, e.key), graph, e)[2]
            pairs = pairs_of(e)
            chosen = {pair for pair, own in zip(pairs, e.selected) if own}
            with_set = [gone for gone in lost if not gone & chosen]
            assert (e.counterexample is None) == (not with_set) == bool(e.always)
            if e.counterexample is not None:
                assert {pairs[row] for row in e.counterexample} in with_set
                assert len(e.counterexample) == min(map(len, with_set))
                assert "Not always: without" in e.summary()
                shown += 1
            meets = [set(own) for n in range(len(pairs) + 1) for own in combinations(pairs, n)]
            least = next(len(own) for own in meets if all(own & gone for gone in lost))
            assert e.always_bound == least
            bounds.add(least)
    assert shown > 5
    assert max(bounds) > 1


class NodeOf(torch.nn.Module):
    """What a model says of one node alone."""

    def __init__(self, model: torch.nn.Module, node: Any) -> None:
        super().__init__()
        self.model, self.node = model, node

    def forward(self, x: Tensor, edge_index: Tensor) -> Tensor:
        return self.model(x, edge_index)[self.node : self.node + 1]  # type: ignore[no-any-return]


@pytest.mark.parametrize("wrong", [{"question": "factual"}, {"alternatives": 2}, {"method": "random"}])
def test_surely_asks_why_for_one_answer_of_a_search(wrong: dict[str, Any]) -> None:
    with pytest.raises(cf2.CF2Error, match="surely"):
        cf2.explain(GraphNet("sum", seed=5), GRAPHS, surely=0.9, **wrong)


def soft_masks(e: Explanation, data: Data) -> Tensor:
    """The chosen edges of an explanation as a soft mask over the columns of `edge_index`, both ways."""
    chosen = {pair for pair, own in zip(pairs_of(e), e.selected) if own}
    return torch.tensor([0.9 if (min(u, v), max(u, v)) in chosen else 0.1 for u, v in data.edge_index.t().tolist()])


def test_judge_gives_anybodys_masks_the_verdicts_of_cf2() -> None:
    model = GraphNet("sum", seed=5)
    found = cf2.explain(model, GRAPHS, method="random", k=2, contexts=64)
    soft = [soft_masks(e, data) for e, data in zip(found, GRAPHS)]
    given: dict[str, Any] = {
        "soft": soft,
        "hard": [mask > 0.5 for mask in soft],
        "by key": dict(enumerate(soft)),
        "pairs": [e.edges for e in found],
        "torch_geometric": [
            PygExplanation(edge_mask=mask, edge_index=data.edge_index) for mask, data in zip(soft, GRAPHS)
        ],
    }
    for masks in given.values():
        judged = cf2.metrics.judge(model, GRAPHS, masks)
        assert [e.size for e in judged.explanations] == [e.size for e in found]
        for name in ("sufficient", "necessary", "ps", "pn", "pns"):
            assert [getattr(e, name) for e in judged.explanations] == [getattr(e, name) for e in found]
        for e in judged.explanations:
            assert e.pns is not None
            assert e.pns[0] == pytest.approx(by_hand(model, GRAPHS[int(e.key)], e)[1])
        assert judged.means == {name: getattr(cf2.metrics, name)(found) for name in ("pn", "ps", "fns", "pns", "size")}
        assert len(judged.rows) == len(GRAPHS)
    ranked = cf2.metrics.judge(model, GRAPHS, [mask * 0.1 for mask in soft], size=2)
    assert [e.size for e in ranked.explanations] == [e.size for e in found]
    assert f"{judged.means['pns']:.2f}" in repr(judged)


def test_judge_of_nodes_and_wrong_masks() -> None:
    model, data = NodeNet("sum", seed=0), random_graph(14, 18, seed=5)
    found = cf2.explain(model, data, [0, 2], method="random", k=3, contexts=64)
    judged = cf2.metrics.judge(model, data, [soft_masks(e, data) for e in found], nodes=[0, 2])
    assert [(e.key, e.size, e.pns) for e in judged.explanations] == [(e.key, e.size, e.pns) for e in found]
    with pytest.raises(cf2.CF2Error, match="one mask per"):
        cf2.metrics.judge(model, data, [], nodes=[0, 2])
    with pytest.raises(cf2.CF2Error, match="number per edge"):
        cf2.metrics.judge(model, data, [torch.ones(3), torch.ones(3)], nodes=[0, 2])


def flipped_by_noise(data: Data) -> Any:
    """A model whose class is that of the number of edges that are not in the graph, up to one."""
    known = {tuple(pair) for pair in data.edge_index.t().tolist()}

    class Flipped(torch.nn.Module):
        def forward(self, x: Tensor, edge_index: Tensor, batch: Tensor) -> Tensor:
            number = x[:, 0].long()  # of the node, so that packs and cuts do not matter
            new = torch.tensor([(a, b) not in known for a, b in number[edge_index].t().tolist()], dtype=torch.float)
            count = torch.zeros(int(batch.max()) + 1).index_add(0, batch[edge_index[0]], new)
            return torch.stack([0 * count, count - 0.5], 1)

    return Flipped()


@pytest.mark.parametrize("most", [1, 3])
def test_the_number_of_edges_of_noise_is_drawn_uniformly(most: int) -> None:
    data = random_graph(9, 10, seed=3)
    data.x = torch.arange(9.0)[:, None]
    (e,) = cf2.explain(flipped_by_noise(data), [data], method="random", k=2, contexts=2000, contexts_add=most)
    assert e.ps is not None
    assert e.ps[1] - 0.01 <= 1 / (most + 1) <= e.ps[2] + 0.01  # the answer holds where no edge is added
    assert e.pns == (0.0, 0.0, e.pns[2])  # type: ignore[index]
    assert not e.all_contexts


def test_contexts_with_noise_are_those_of_the_whole_graph_by_itself(monkeypatch: pytest.MonkeyPatch) -> None:
    """Of nodes an added edge brings in what lies outside of the receptive field, and packs do not matter."""
    parts, ids, real = list[Any](), list[Tensor](), (Session._with_noise, session.with_noise)

    def added(instance: Any, kinds: Any, *given: Any) -> Any:
        made = real[1](instance, kinds, *given)
        ids.append(units_of(made[0], kinds).ids)
        return made

    def noisy(self: Session, *given: Any) -> Any:
        for part in real[0](self, *given):
            parts.append(part)
            yield part

    monkeypatch.setattr(Session, "_with_noise", noisy)
    monkeypatch.setattr(session, "with_noise", added)
    data, model, outside = random_graph(24, 30, seed=5), NodeNet("gcn", seed=2, layers=2), 0
    found = cf2.explain(model, data, range(6), method="random", k=2, contexts=12, contexts_add=3)
    rows = [(part, place, row) for part in parts for place, row in enumerate(part.rows.tolist())]
    for (part, place, row), pairs in zip(rows, ids, strict=True):
        noise = part.added[place]
        assert noise.sum(1).max() <= 3
        said = part.oracle.outputs(torch.full((len(noise),), place), ~noise)
        for bits, outputs in zip(noise, said):
            new = pairs[bits[: len(pairs)]].t()
            with torch.no_grad():
                alone = model(data.x, torch.cat([data.edge_index, new, new.flip(0)], 1))[found[row].key].softmax(0)
            assert outputs.tolist() == pytest.approx(alone.tolist(), abs=1e-5)
            outside += bool(new.size(1)) and len(part.oracle.pack.x) < 6 * 24
    assert outside > 20


@pytest.mark.parametrize(
    "options", [{}, {"contexts": 8, "surely": 0.5}, {"contexts": 8, "question": "counterfactual", "edits": ("add",)}]
)
def test_noise_is_refused_without_contexts_and_beside_edits_that_add(options: dict[str, Any]) -> None:
    with pytest.raises(cf2.CF2Error, match="contexts_add"):
        cf2.explain(GraphNet("sum", seed=5), GRAPHS, contexts_add=2, **options)


@pytest.mark.parametrize("units", ["edges", "features", "nodes", ("edges", "features")])
def test_noise_is_drawn_whatever_an_answer_is_made_of(units: Any) -> None:
    for e in cf2.explain(GraphNet("sum", seed=5), GRAPHS, units=units, contexts=16, contexts_add=2):
        assert e.contexts in (0, 16)
        assert not e.all_contexts


def test_robust_measures_what_contexts_with_noise_do() -> None:
    model = GraphNet("sum", seed=5)
    with pytest.warns(DeprecationWarning, match="contexts=256.*surely=0.9"):
        found = cf2.explain(model, GRAPHS, robust=2)
    for e, other in zip(found, cf2.explain(model, GRAPHS, contexts=256, contexts_add=3)):
        assert (e.selected == other.selected).all()
        assert (e.status, e.optimal, e.pns) == (other.status, other.optimal, other.pns)
