"""Edit rules: what they are called, and what they do to other graphs, by brute force."""

from __future__ import annotations

from itertools import product
from pathlib import Path as FilePath
from typing import Any

import numpy as np
import pytest
import torch
from torch_geometric.data import Data

import cf2
from cf2.patterns.edit_rules import EditRules
from cf2.patterns.summary import SummaryOptions
from cf2.results.explanations import Explanations
from pattern_toys import KINDS, Path, made, planted, says

Changed = tuple[Any, list[Any], Explanations]


@pytest.fixture(scope="module")
def changed() -> Changed:
    return planted(KINDS, 0, 40, question="counterfactual")


def test_the_rules_that_undo_a_path_are_its_two_edges(changed: Changed) -> None:
    rules = changed[2].rules(*changed[:2])
    texts = {one.rule.text for one in rules}
    assert texts <= {"remove x0–x1", "remove x1–x2", "remove x1–x0", "remove x2–x1"}
    assert all(one.rule.size == 1 and one.turned.value == 1.0 and one.prediction == 1 for one in rules)
    assert rules.about["together"][1].value == 1.0
    assert rules.about["tested"][1] > 3
    assert len(rules.to_pandas()) == len(rules.to_dict()["rules"]) == len(rules)
    assert "turns 100 %" in repr(rules)


@pytest.mark.parametrize(("edits", "start"), [(("add",), "add x1–x2"), (("add", "change"), "x1–[+]–x")])
def test_rules_that_add_and_change_are_carried_out(edits: tuple[str, ...], start: str) -> None:
    """Answers that make a path: the edge to an x2 that is there, or to another node that becomes one."""
    model, graphs = Path(*KINDS), [made(KINDS, number, number % 4 == 0) for number in range(120)]
    explained = cf2.explain(model, graphs, range(1, 120, 2), question="counterfactual", edits=edits)
    rules = explained.rules(model, graphs, held_out=0.4).of(0)
    assert len(rules) >= 1
    assert all(one.rule.text.startswith(start) and one.rule.size == len(edits) for one in rules)
    if edits == ("add",):
        assert rules[0].turned.value == pytest.approx(by_hand(model, graphs, 0.4))
    else:
        assert all("→x2" in one.rule.text or "→x0" in one.rule.text for one in rules)


def by_hand(model: Any, graphs: list[Any], held_out: float) -> float:
    """The share of held-out graphs without a path that some edge between an x1 and an x2 gives one."""
    options, turned = SummaryOptions(held_out=held_out), []
    for graph in (graph for key, graph in enumerate(graphs) if options.is_test(key) and says(model, graph) == 0):
        kind, there = graph.x.argmax(1).tolist(), graph.edge_index.t().tolist()
        pairs = [[a, b] for a, b in product(range(len(kind)), repeat=2) if (kind[a], kind[b]) == (1, 2)]
        new = [torch.tensor([[a, b], [b, a]]) for a, b in pairs if [a, b] not in there]
        more = [Data(x=graph.x, edge_index=torch.cat([graph.edge_index, ends], 1)) for ends in new]
        turned.append(any(says(model, edited) == 1 for edited in more))
    return float(np.mean(turned))


def test_answers_to_other_questions_and_about_nodes_are_refused(changed: Changed) -> None:
    model, graphs, _ = changed
    for asked in ({}, {"question": "counterfactual", "units": "nodes"}):
        with pytest.raises(cf2.CF2Error, match="counterfactual"):
            cf2.explain(model, graphs, [0, 2], **asked).rules(model, graphs)
    assert torch.equal(graphs[0].edge_index, made(KINDS, 0, True).edge_index), "the data is left as it was"


def test_files_give_rules_back(changed: Changed, tmp_path: FilePath) -> None:
    rules = changed[2].rules(*changed[:2])
    read = EditRules.load(rules.save(tmp_path / "rules.json"))
    assert (repr(read), read.to_dict()) == (repr(rules), rules.to_dict())


@pytest.mark.parametrize("text", ["", "[]", '{"rules": [{}], "about": {}}', '{"rules": 3, "about": {}}'])
def test_a_damaged_file_is_said(tmp_path: FilePath, text: str) -> None:
    (tmp_path / "rules.json").write_text(text)
    with pytest.raises(cf2.CF2Error, match=r"Expected .* edit rules, but got"):
        EditRules.load(tmp_path / "rules.json")
