"""Tables and words: what a reader sees of many explanations, and how wrong calls are refused."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pandas
import pytest
import torch
from torch_geometric.data import Data
from torch_geometric.nn import GCN

import cf2
from cf2.errors import CF2Error

NAMES = ["quiet", "busy"]


def small() -> tuple[GCN, Data]:
    torch.manual_seed(0)
    edges = torch.tensor([[0, 1, 1, 2, 2, 3], [1, 0, 2, 1, 3, 2]])
    return GCN(3, 8, 2, 2), Data(x=torch.randn(4, 3), edge_index=edges)


@pytest.fixture(scope="module")
def changed() -> cf2.Explanations:
    model, data = small()
    return cf2.explain(
        model, data, [1, 2], question="counterfactual", units="edges,features", class_names=NAMES, alternatives=2
    )


def test_a_table_has_rank_names_edits_and_class_names(changed: cf2.Explanations, tmp_path: Path) -> None:
    table = changed.to_pandas()
    assert table["rank"].tolist() == [e.rank for e in changed]
    assert max(table["rank"]) == 1
    assert cf2.metrics.size(changed) == cf2.metrics.size([e for e in changed if not e.rank])
    assert table["names"].tolist() == [e.chosen_names for e in changed]
    assert table["edits"].tolist() == [e.edits for e in changed]
    assert all(table["edits"])
    assert set(table["prediction_name"]) <= set(NAMES)
    written = pandas.read_csv(changed.to_csv(tmp_path / "table.csv"))
    assert {"rank", "names", "edits", "prediction_name"} <= set(written.columns)
    model, data = small()
    assert "edits" not in cf2.explain(model, data, [1]).to_pandas()


def test_printing_says_what_was_asked_and_leaves_out_what_was_not(changed: cf2.Explanations) -> None:
    assert repr(changed).startswith("Explanations(question='counterfactual', n=")
    assert "ps=" not in repr(changed)
    assert "fns=" not in repr(changed)
    model, data = small()
    assert "pn=" not in repr(cf2.explain(model, data, [1], question="factual"))
    assert repr(cf2.explain(model, data, [1])).startswith("Explanations(n=1, pn=")


def test_short_reprs() -> None:
    model, data = small()
    (e,) = cf2.explain(model, data, [1], units=("edges", "features"))
    assert repr(e.units) == "UnitTable(3 edges, 12 features)"
    assert repr(cf2.Explainer(model, data)).startswith("<Explainer of GCN on a graph of 4 nodes and 6 edges")
    assert "2 graphs" in repr(cf2.Explainer(model, [data, data]))


def test_notes_call_classes_by_their_names() -> None:
    model, data = small()
    said = cf2.explain(model, data, [1], class_names=NAMES)[0].prediction
    (e,) = cf2.explain(model, data, [1], class_names=NAMES, target=1 - said)
    assert f"predicts {NAMES[said]}, not {NAMES[1 - said]}" in e.note
    assert f"target={1 - said}" in e.note


def test_k_names_the_three_options_that_may_be_meant() -> None:
    model, data = small()
    with pytest.raises(CF2Error) as error:
        cf2.explain(model, data, [1], k=5)
    assert [name in str(error.value) for name in ("alternatives", "max_units", "sizes", "node_names")] == [
        *(True, True, True, False)
    ]
    with pytest.raises(CF2Error) as other:
        cf2.explain(model, data, [1], zzz=5)
    assert str(other.value).count("'") <= 10  # the nearest, not all fifty
    assert cf2.explain(model, data, [1], method="gradient", k=2)[0].size == 2


def test_features_of_numpy_or_double_are_told_what_to_do() -> None:
    model, data = small()
    wrong = data.clone()
    wrong.x = np.asarray(data.x)
    with pytest.raises(CF2Error, match=r"torch\.from_numpy\(data\.x\)\.float\(\)"):
        cf2.explain(model, wrong, [1])
    wrong.x = data.x.double()
    with pytest.raises(CF2Error, match=r"data\.x = data\.x\.float\(\), or model\.double\(\)"):
        cf2.explain(model, wrong, [1])


def test_files_go_only_where_they_can_be_read(changed: cf2.Explanations, tmp_path: Path) -> None:
    with pytest.raises(CF2Error, match="directory that is there"):
        changed[0].plot(path=tmp_path / "new" / "a.png")
    assert not (tmp_path / "new").exists()
    with pytest.raises(CF2Error, match=r"\.html file"):
        changed.report(tmp_path / "x.pdf")
    assert changed.report(tmp_path / "x.html").exists()


def test_labels_of_patterns_that_do_not_fit_are_refused() -> None:
    model, data = small()
    found = cf2.explain(model, data, [1, 2])
    with pytest.raises(CF2Error, match="one-hot columns"):
        found.patterns(model, data, labels=["a", "b", "c"])  # as many as columns, which are not one-hot
    data.x = torch.eye(3)[[0, 1, 2, 0]]
    found = cf2.explain(model, data, [1, 2])
    with pytest.raises(CF2Error, match="5 names for 3 columns"):
        found.patterns(model, data, labels=list("abcde"))
    found.patterns(model, data, labels=list("abc"))
