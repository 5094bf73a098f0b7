"""Edit rules: what they are called, and what they do to other graphs, by brute force."""

from __future__ import annotations

import json
from dataclasses import replace
from itertools import product
from pathlib import Path as FilePath
from typing import Any

import numpy as np
import pytest
import torch

import cf2
from cf2.patterns.edit_rules import EditRules
from cf2.patterns.summary import SummaryOptions
from cf2.results.explanations import Explanations
from pattern_toys import KINDS, Path, made, planted

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


class Edited:
    """An explanation with a list of edits of its own, as those have that add and change."""

    def __init__(self, e: Any, edits: list[tuple[Any, ...]]) -> None:
        self._e, self.edits = e, edits

    def __getattr__(self, name: str) -> Any:
        return getattr(self._e, name)


@pytest.mark.parametrize("changes", [False, True])
def test_rules_that_add_and_change_are_carried_out(changed: Changed, changes: bool) -> None:
    """Answers that make a path: the edge to an x2 that is there, or to another node that becomes one."""
    model, graphs = Path(*KINDS), [made(KINDS, number, number % 4 == 0) for number in range(160)]
    explained = cf2.explain(model, graphs, range(1, 160, 2), question="counterfactual")
    answers = []
    for e in explained:
        graph = graphs[e.key]
        kind = [int(row.argmax()) for row in graph.x]
        b = kind.index(1)
        near = {kind[n] for n in graph.edge_index[1][graph.edge_index[0] == b].tolist()}
        if e.prediction == 1 or 0 not in near or (2 in kind) == changes:
            continue
        end = next(n for n, k in enumerate(kind) if k == (3 if changes and 3 in kind else 4 if changes else 2))
        edits: list[tuple[Any, ...]] = [("add", (b, end))]
        if changes:
            edits += [("change", (end, kind[end]), 1.0, 0.0), ("change", (end, 2), 0.0, 1.0)]
        answers.append(Edited(replace(e, status="found", necessary=True), edits))
    rules = Explanations(tuple(answers), explained.context).rules(model, graphs, held_out=0.4)  # type: ignore[arg-type]
    assert [one.prediction for one in rules] == [0] * len(rules)
    assert len(rules) >= 1
    if changes:
        assert {one.rule.size for one in rules} == {2}
        assert all("→x2" in one.rule.text for one in rules)
    else:
        assert [one.rule.text for one in rules] == ["add x1–x2"]
        assert rules[0].turned.value == pytest.approx(_by_hand(model, graphs, 0.4))


def _by_hand(model: Any, graphs: list[Any], held_out: float) -> float:
    """The share of held-out graphs without a path that some edge between an x1 and an x2 gives one."""
    options, turned = SummaryOptions(held_out=held_out), []
    for graph in (graph for key, graph in enumerate(graphs) if options.is_test(key)):
        batch = torch.zeros(graph.num_nodes).long()
        kind, there = graph.x.argmax(1).tolist(), graph.edge_index.t().tolist()
        if int(model(graph.x, graph.edge_index, batch)[0].argmax()) == 1:
            continue
        pairs = [(a, b) for a, b in product(range(len(kind)), repeat=2) if (kind[a], kind[b]) == (1, 2)]
        new = [torch.tensor([[a, b], [b, a]]) for a, b in pairs if [a, b] not in there]
        more = [torch.cat([graph.edge_index, ends], 1) for ends in new]
        turned.append(any(int(model(graph.x, edges, batch)[0].argmax()) == 1 for edges in more))
    return float(np.mean(turned))


def test_answers_to_other_questions_are_refused(changed: Changed) -> None:
    model, graphs, _ = changed
    with pytest.raises(cf2.CF2Error, match="counterfactual"):
        cf2.explain(model, graphs, [0, 2]).rules(model, graphs)
    assert torch.equal(graphs[0].edge_index, made(KINDS, 0, True).edge_index), "the data is left as it was"


def test_files_give_rules_back_also_those_that_have_the_edit_distances_of_version_0_2(
    changed: Changed, tmp_path: FilePath
) -> None:
    rules = changed[2].rules(*changed[:2])
    path = rules.save(tmp_path / "rules.json")
    assert (repr(EditRules.load(path)), EditRules.load(path).to_dict()) == (repr(rules), rules.to_dict())
    given = rules.to_dict()
    given["about"] |= {"theta": 0.1, "within": {"1": [0.5, 0.4, 0.6]}, "coverage": {"1": {"surely": 0.5}}}
    given["rules"] = [{**row, "within": [0.5, 0.4, 0.6]} for row in given["rules"]]
    path.write_text(json.dumps(given))
    assert EditRules.load(path).to_dict()["rules"] == rules.to_dict()["rules"]


@pytest.mark.parametrize("text", ["", "[]", '{"rules": [{}], "about": {}}', '{"rules": 3, "about": {}}'])
def test_a_damaged_file_is_said(tmp_path: FilePath, text: str) -> None:
    (tmp_path / "rules.json").write_text(text)
    with pytest.raises(cf2.CF2Error, match="Expected a file of edit rules, but got"):
        EditRules.load(tmp_path / "rules.json")
