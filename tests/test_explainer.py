"""`cf2.Explainer` answers as `cf2.explain` does, measures once, and notices when model or data change."""

from __future__ import annotations

import numpy as np
import pytest
import torch

import cf2
from cf2.graphs.graph import Graph
from cf2.models.receptive_field import ReceptiveField
from toys import GraphNet, NodeNet, random_graph


@pytest.fixture
def counted(monkeypatch: pytest.MonkeyPatch) -> dict[str, int]:
    """How often a graph was checked and a model measured."""
    counts = {"graphs": 0, "measured": 0}
    made, measured = Graph.__init__, ReceptiveField._measure

    def init(self: Graph, *args: object, **options: object) -> None:
        counts["graphs"] += 1
        made(self, *args, **options)  # type: ignore[arg-type]

    def measure(self: ReceptiveField, graph: Graph) -> object:
        counts["measured"] += 1
        return measured(self, graph)

    monkeypatch.setattr(Graph, "__init__", init)
    monkeypatch.setattr(ReceptiveField, "_measure", measure)
    return counts


def test_it_answers_as_explain_does_and_measures_once(counted: dict[str, int]) -> None:
    data, model = random_graph(30, 45, seed=1), NodeNet("gcn", seed=1)
    explainer = cf2.Explainer(model, data)
    for nodes in ([3], [7, 9], [3]):
        kept = explainer.explain(nodes, effort="quick")
        before = dict(counted)
        plain = cf2.explain(model, data, nodes=nodes, effort="quick")
        assert counted == {name: number + 1 for name, number in before.items()}
        assert [e.key for e in kept] == [e.key for e in plain]
        assert all(np.array_equal(a.selected, b.selected) for a, b in zip(kept, plain))
    assert counted == {"graphs": 4, "measured": 4}  # three of them by `cf2.explain`


def test_it_looks_again_when_the_model_or_the_graph_has_changed(counted: dict[str, int]) -> None:
    data, model = random_graph(30, 45, seed=1), NodeNet("gcn", seed=1)
    explainer = cf2.Explainer(model, data)
    explainer.explain(nodes=[3])
    with torch.no_grad():
        next(model.parameters()).mul_(-1.0)
    assert explainer.explain(nodes=[3])[0].prediction == cf2.explain(model, data, nodes=[3])[0].prediction
    data.x = data.x * 2
    (e,) = explainer.explain(nodes=[3])
    (plain,) = cf2.explain(model, data, nodes=[3])
    assert np.allclose(e.probabilities, plain.probabilities)
    data.edge_index = data.edge_index[:, :-4]
    assert explainer.explain(nodes=[3])[0].num_units == cf2.explain(model, data, nodes=[3])[0].num_units
    assert counted["measured"] == 7


def test_it_takes_graphs_and_every_option(counted: dict[str, int]) -> None:
    graphs, model = [random_graph(7, 8, seed=seed) for seed in range(3)], GraphNet("gin", seed=1)
    explainer = cf2.Explainer(model, graphs)
    for options in ({"question": "factual"}, {"units": "features"}, {"method": "gradient", "k": 2}):
        kept, plain = explainer.explain(**options), cf2.explain(model, graphs, **options)  # type: ignore[arg-type]
        assert [e.selected.tolist() for e in kept] == [e.selected.tolist() for e in plain]
    with pytest.raises(cf2.CF2Error, match="efort"):
        explainer.explain(efort="quick")


def test_counterfactual_is_explain_with_that_question() -> None:
    data, model = random_graph(30, 45, seed=1), NodeNet("gcn", seed=1)
    asked = {"edits": ("remove", "change"), "effort": "quick"}
    predicted = [e.prediction for e in cf2.explain(model, data, nodes=[3, 7], effort="quick")]
    others = [(answer + 1) % len(model(data.x, data.edge_index)[0]) for answer in predicted]
    for to in (None, others):
        wanted = cf2.explain(model, data, [3, 7], question="counterfactual", target=to, **asked)
        for got in (
            cf2.counterfactual(model, data, [3, 7], to=to, **asked),
            cf2.Explainer(model, data).counterfactual([3, 7], to=to, **asked),
        ):
            assert [(e.question, e.target, e.edits) for e in got] == [(e.question, e.target, e.edits) for e in wanted]
    assert any(e.edits for e in wanted)


def test_a_counterfactual_refuses_a_question_and_two_targets() -> None:
    data, model = random_graph(30, 45, seed=1), NodeNet("gcn", seed=1)
    with pytest.raises(cf2.CF2Error, match="no `question`"):
        cf2.counterfactual(model, data, [3], question="why")  # type: ignore[call-arg]
    with pytest.raises(cf2.CF2Error, match="either `to` or `target`"):
        cf2.counterfactual(model, data, [3], to=0, target=1)
