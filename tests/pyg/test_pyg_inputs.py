"""The torch_geometric drop-in: every way to choose outputs, and a sentence for what cannot be meant."""

from __future__ import annotations

import logging
from typing import Any

import numpy as np
import pytest
import torch
from torch import nn
from torch_geometric.explain import Explainer

from cf2.errors import CF2Error
from cf2.pyg import CF2Explainer, CFGNNExplainer, MethodExplainer, VerifiedExplanation
from cf2.pyg.arguments import classes_of, keys_of
from pyg_toys import make_explainer, make_graph, make_model

NAN = float("nan")


@pytest.mark.parametrize(
    ("index", "wanted"),
    [
        (None, [0, 1, 2, 3]),
        (2, [2]),
        (-1, [3]),
        (np.int64(2), [2]),
        ([3, 1], [3, 1]),
        (slice(1, 3), [1, 2]),
        (np.array([3, 1]), [3, 1]),
        (torch.tensor(2), [2]),
        (torch.tensor([3, 1, 3]), [3, 1, 3]),
        (torch.tensor([True, False, False, True]), [0, 3]),
        (torch.tensor([1, 0, 0, 1], dtype=torch.uint8), [0, 3]),
    ],
)
def test_outputs_are_chosen_as_torch_would(index: Any, wanted: list[int]) -> None:
    assert keys_of(index, 4) == wanted


@pytest.mark.parametrize(
    "index",
    [
        *(4, -5, 1.0, "1", True, [], [1.5], [None, 1], [[0], [1, 2]], 10**30, {}, object(), slice("a", None)),
        *(torch.tensor([1.0]), torch.tensor([True]), np.array([1.0]), torch.zeros(4, dtype=torch.bool)),
        torch.zeros(2, dtype=torch.long, device="meta"),
    ],
)
def test_what_chooses_no_output_is_refused(index: Any) -> None:
    with pytest.raises(CF2Error, match="Expected `index` to choose"):
        keys_of(index, 4)


@pytest.mark.parametrize(
    "target", ["a", None, object(), [0, 1], torch.zeros(4, device="meta"), [0, 1, NAN, 0], [0, -1, 0, 0], ["a"] * 4]
)
def test_what_holds_no_classes_is_refused(target: Any) -> None:
    with pytest.raises(CF2Error, match="Expected `target` to hold"):
        classes_of(target, [0, 1, 2], 4)


@pytest.mark.parametrize(
    ("make", "said"),
    [
        (lambda: MethodExplainer("cf3"), "Did you mean 'cf2'"),
        (lambda: MethodExplainer(3), "`method` to be a name"),  # type: ignore[arg-type]
        (lambda: MethodExplainer("gradient", soft="yes"), "`soft` to be True or False"),  # type: ignore[arg-type]
        (lambda: MethodExplainer("gradient", k=NAN), "`k`"),
        (lambda: MethodExplainer("gradient", trained={}), "no `trained` for method 'gradient'"),
        (lambda: CF2Explainer(seed=1.0), "`seed`"),  # type: ignore[arg-type]
        (lambda: CFGNNExplainer(k=3), "setting"),
        (lambda: CF2Explainer(epoch=3), "Did you mean 'epochs'"),
        (lambda: CFGNNExplainer(betta=3), "Did you mean 'beta'"),
        (lambda: CF2Explainer(relaxed=True, effort="quick"), "setting"),
    ],
)
def test_options_are_refused_when_the_algorithm_is_made(make: Any, said: str) -> None:
    with pytest.raises(CF2Error, match=said):
        make()


@pytest.mark.parametrize(
    ("algorithm", "kind", "mode", "node_mask", "said"),
    [
        (MethodExplainer("gem"), "model", "multiclass_classification", None, "needs training for method 'gem'"),
        (MethodExplainer("truth"), "model", "multiclass_classification", None, "needs truth for method 'truth'"),
        (
            MethodExplainer("truth", trained={}),
            "model",
            "multiclass_classification",
            "attributes",
            "kinds that method 'truth' scores, edges, but got features",
        ),
        (CF2Explainer(), "phenomenon", "regression", None, "`explanation_type=model` for regressions"),
    ],
)
def test_supports_says_in_words_what_is_missing(
    algorithm: Any, kind: str, mode: str, node_mask: str, said: str, caplog: pytest.LogCaptureFixture
) -> None:
    config = {"mode": mode, "task_level": "node", "return_type": "raw"}
    masks = {"edge_mask_type": "object", "node_mask_type": node_mask}
    with caplog.at_level(logging.ERROR), pytest.raises(ValueError, match="does not support"):
        Explainer(make_model("gcn", "node"), algorithm, kind, config, **masks)
    assert said in caplog.text


def test_an_algorithm_by_itself_says_that_an_explainer_is_missing() -> None:
    data = make_graph()
    with pytest.raises(CF2Error, match=r"Create an Explainer\(model, algorithm=CF2Explainer"):
        CF2Explainer()(make_model("gcn", "node"), data.x, data.edge_index, target=torch.zeros(12))


GRAPH: dict[str, Any] = {
    "x none": {"x": None},
    "x nan": {"x": torch.full((12, 4), NAN)},
    "x sparse": {"x": torch.ones(12, 4).to_sparse()},
    "x float64": {"x": torch.ones(12, 4, dtype=torch.float64)},
    "edges none": {"edge_index": None},
    "edges outside": {"edge_index": torch.tensor([[0, 40], [40, 0]])},
    "edges as a matrix": {"edge_index": torch.eye(12).to_sparse()},
    "index": {"index": "first"},
    "target too short": {"target": torch.zeros(2)},
    "target floats": {"target": torch.full((12,), 0.5)},
    "batch string": {"batch": "one"},
    "batch too short": {"batch": torch.zeros(3, dtype=torch.long)},
    "batch negative": {"batch": torch.zeros(12, dtype=torch.long) - 1},
    "batch across edges": {"batch": torch.arange(12) // 6},
    "an argument that is not there": {"strength": 3.0},
    "weights": {"edge_weight": torch.ones(3)},
    "model none": {"model": None},
    "model without layers": {"model": nn.Linear(4, 3)},
}


@pytest.mark.parametrize("level", ["node", "graph"])
@pytest.mark.parametrize("name", GRAPH)
def test_an_odd_call_is_answered_or_refused_in_words(name: str, level: str) -> None:
    model, data, algorithm = make_model("gcn", level), make_graph(), CF2Explainer(effort="quick", epochs=2)
    make_explainer(model, level, algorithm=algorithm, explanation_type="phenomenon")
    given = {
        "model": model,
        "x": data.x,
        "edge_index": data.edge_index,
        "target": torch.zeros(12 if level == "node" else 1, dtype=torch.long),
        "index": 1 if level == "node" else 0,
    }
    given |= GRAPH[name]
    weights = {key: value.clone() for key, value in model.state_dict().items()}
    try:
        found = algorithm(given.pop("model"), given.pop("x"), given.pop("edge_index"), **given)
    except CF2Error as error:
        assert str(error).startswith("Expected ")  # noqa: PT017
    else:
        assert isinstance(found, VerifiedExplanation)
        assert len(found.cf2) == 1
    assert all(torch.equal(value, weights[key]) for key, value in model.state_dict().items())
    assert all(not conv._message_forward_hooks for conv in model.convs)
