"""Names of classes, nodes and features, and SMILES: what a user gives is checked, and every word and picture has it."""

from __future__ import annotations

import logging
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor, nn
from torch_geometric.data import Data
from torch_geometric.nn import GraphConv, global_add_pool

import cf2
import typed_toys
from cf2.report.scene import scene
from cf2.report.words import describe_unit, in_short
from cf2.results.names import entry
from cf2.runs import progress
from cf2.units.molecules import read_smiles
from toys import NodeNet, random_graph

SMILES = ["O=[N+]([O-])c1ccccc1", "CCO", "c1ccccc1"]


class CountsNitrogen(nn.Module):
    """Says 1 of a graph in which nitrogens get messages: the second column, or where there are bonds, double ones."""

    def __init__(self) -> None:
        super().__init__()
        self.conv = GraphConv(1, 1, bias=False)
        with torch.no_grad():
            self.conv.lin_rel.weight.fill_(1.0)
            self.conv.lin_root.weight.zero_()

    def forward(self, x: Tensor, edge_index: Tensor, batch: Tensor) -> Tensor:
        return self.says(x[:, 1:2], edge_index, None, batch, 1.5)

    def says(self, nitrogen: Tensor, edge_index: Tensor, weight: Tensor | None, batch: Tensor, least: float) -> Tensor:
        said = global_add_pool(self.conv(nitrogen, edge_index, weight), batch) - least
        return torch.cat([-said, said], 1)


class CountsNitro(CountsNitrogen):
    """Says 1 of a graph with a double bond at a nitrogen, by the features of `from_smiles`."""

    def forward(self, x: Tensor, edge_index: Tensor, edge_attr: Tensor, batch: Tensor) -> Tensor:  # type: ignore[override]
        double = (edge_attr[:, 0] == 2).float()
        return self.says((x[:, :1] == 7).float(), edge_index, double, batch, 0.5)


def molecule(smiles: str) -> Data:
    Chem = pytest.importorskip("rdkit.Chem")
    read = Chem.MolFromSmiles(smiles)
    x = torch.zeros(read.GetNumAtoms(), 3)
    for atom in read.GetAtoms():
        x[atom.GetIdx(), "CNO".index(atom.GetSymbol())] = 1
    ends = torch.tensor([(b.GetBeginAtomIdx(), b.GetEndAtomIdx()) for b in read.GetBonds()]).t()
    return Data(x=x, edge_index=torch.cat([ends, ends.flip(0)], 1), smiles=smiles)


@pytest.fixture(scope="module")
def molecules() -> list[Data]:
    return [molecule(smiles) for smiles in SMILES]


def without_smiles(molecules: list[Data]) -> list[Data]:
    return [Data(x=one.x, edge_index=one.edge_index) for one in molecules]


# -- molecules ------------------------------------------------------------------------------------------------


def test_molecules_of_the_data_are_drawn_without_being_asked_for(molecules: list[Data], tmp_path: Path) -> None:
    found = cf2.explain(CountsNitrogen(), molecules, class_names=["quiet", "nitro"])
    e = found[0]
    assert 1 in e.nodes, "the nitrogen"
    shown = scene(e)
    assert shown.molecule
    assert shown.labels[:3] == ("O", "N", "O")
    assert shown.formal[:3] == ((0, 0), (1, 0), (-1, 0)), "charges of the nitro group"
    assert shown.formal[4] == (0, 1), "a hydrogen at the ring"
    assert sorted(set(shown.bonds.tolist())) == [1.0, 2.0], "aromatic rings as chemists draw them"
    assert e.plot().axes[0].images, "pixels that RDKit drew"
    page = found.report(tmp_path / "report.html").read_text(encoding="utf-8")
    assert "cf2-molecule cf2-bond" in page
    assert "predicts nitro" in page


def test_smiles_can_be_given(molecules: list[Data]) -> None:
    bare, model = without_smiles(molecules), CountsNitrogen()
    assert "graphs" not in cf2.explain(model, bare).context
    for given in (SMILES, dict(enumerate(SMILES)), {str(i): s for i, s in enumerate(SMILES)}):
        context = cf2.explain(model, bare, [0, 1], smiles=given).context
        assert context["smiles"] == {"0": SMILES[0], "1": SMILES[1]}
        assert context["graphs"]["1"]["labels"] == ["C", "C", "O"]
    one = cf2.explain(model, bare[0], smiles=SMILES[0], level="graph")
    assert one.context["smiles"] == {"0": SMILES[0]}


def test_a_graph_is_drawn_with_its_edges_where_nodes_are_the_answer(molecules: list[Data]) -> None:
    bare = without_smiles(molecules)
    (e,) = cf2.explain(CountsNitrogen(), bare, [1], units="nodes")
    drawn = {tuple(sorted(pair)) for pair in bare[1].edge_index.t().tolist()}
    assert {tuple(pair) for pair in scene(e).edges.tolist()} == drawn


def test_smiles_with_all_hydrogens() -> None:
    Chem = pytest.importorskip("rdkit.Chem")
    whole = Chem.AddHs(Chem.MolFromSmiles("CO"))
    ends = torch.tensor([(b.GetBeginAtomIdx(), b.GetEndAtomIdx()) for b in whole.GetBonds()]).t().numpy()
    read = read_smiles("CO", 6, ends, "graph 0")
    assert read["labels"] == ["C", "O", "H", "H", "H", "H"]
    assert read["formal"] == [[0, 0]] * 6


def test_elements_of_one_hot_columns(molecules: list[Data]) -> None:
    context = cf2.explain(CountsNitrogen(), without_smiles(molecules), [1], atoms=["C", "N", "O"]).context
    assert context["graphs"]["1"] == {"labels": ["C", "C", "O"]}


@pytest.mark.parametrize(
    ("given", "said"),
    [
        (["CCO"], "for each of the 3 graphs, or by key, but got 1 in a list"),
        ({0: "CCO"}, "Expected an atom for each of the 9 nodes of graph 0|to be the bonds of 'CCO'"),
        ({0: "no molecule"}, "a SMILES that RDKit can read for graph 0, but got 'no molecule'"),
        ({0: "c1ccccc1[N+](=O)[O-]"}, "Number the atoms as RDKit does"),
        ({0: 3}, "to be text, but got 3"),
        ("CCO", "for each of the 3 graphs"),
    ],
)
def test_other_smiles_are_refused(given: Any, said: str, molecules: list[Data]) -> None:
    with pytest.raises(cf2.CF2Error, match=said):
        cf2.explain(CountsNitrogen(), molecules, smiles=given)


def test_wrong_smiles_of_the_data_are_told_of_and_not_drawn(
    molecules: list[Data], caplog: pytest.LogCaptureFixture
) -> None:
    wrong = Data(x=molecules[0].x, edge_index=molecules[0].edge_index, smiles="CCO")
    with caplog.at_level(logging.INFO, "cf2"):
        found = cf2.explain(CountsNitrogen(), [wrong])
    assert "smiles" not in found.context
    assert "`smiles` of graph 0 is not used for drawing" in caplog.text


# -- names ----------------------------------------------------------------------------------------------------


def accounts() -> tuple[nn.Module, Data]:
    return NodeNet("gat", features=4, classes=3), random_graph(12, 24, features=4)


NAMED = [f"account-{number}" for number in range(12)]


def test_every_word_has_the_names_also_from_a_file(tmp_path: Path) -> None:
    model, data = accounts()
    given: dict[str, Any] = {"class_names": ["a", "b", "fraud"], "node_names": NAMED}
    found = cf2.explain(model, data, [3], **given)
    e = found[0]
    assert "node 3 (account-3)" in repr(e)
    assert "account-" in describe_unit(e, 0)
    assert repr(cf2.load(found.save(tmp_path / "found.parquet"))[0]) == repr(e)
    said = ("a", "b", "fraud")[e.prediction]
    assert said in e.summary()
    assert said in in_short(e)
    assert scene(e).texts[0].startswith("account-")
    assert dict(e.to_networkx().nodes(data="name"))[3] == "account-3"
    columns = cf2.explain(model, data, [3], units="columns", feature_names=["age", "sum", "city", "bank"])[0]
    assert describe_unit(columns, 1) == "sum"
    entries = cf2.explain(model, data, [3], units="features", feature_names={0: "age"}, **given)[0]
    assert describe_unit(entries, 0).endswith(", age")
    assert "feature 1" in describe_unit(entries, 1), "what has no name keeps its number"


def test_names_by_number_or_text() -> None:
    model, data = accounts()
    for given in ({3: "x"}, {"3": "x"}):
        assert "node 3 (x)" in repr(cf2.explain(model, data, [3], node_names=given)[0])
    e = cf2.explain(model, data, [3])[0]
    for table in ({3: [(3, 0)]}, {"3": [(3, 0)]}):
        assert scene(replace(e, context={"truth": table})).true.any()
    for names in (["q", "r", "s"], {0: "q", 1: "r", 2: "s"}, {"0": "q", "1": "r", "2": "s"}):
        assert {entry(names, number) for number in range(3)} == {"q", "r", "s"}
        assert cf2.explain(model, data, [3], class_names=names).context["class_names"] == ["q", "r", "s"]


def test_names_of_a_typed_graph() -> None:
    data, model = typed_toys.graph(), typed_toys.model()
    kind = data.node_types[0]
    names = {kind: [f"{kind}-{i}" for i in range(data[kind].num_nodes)]}
    e = cf2.explain(model, data, [0], node_type=kind, node_names=names)[0]
    assert f"{kind} {kind}-0" in repr(e)
    with pytest.raises(cf2.CF2Error, match="`node_names` by node type"):
        cf2.explain(model, data, [0], node_type=kind, node_names=["a"])
    with pytest.raises(cf2.CF2Error, match=f"one for each node of type {kind!r}"):
        cf2.explain(model, data, [0], node_type=kind, node_names={kind: ["a"]})


@pytest.mark.parametrize(
    ("given", "said"),
    [
        ({"class_names": ["a"]}, "`class_names` to hold 3 names, one for each class of the model, but got 1"),
        ({"class_names": "abc"}, "a list with one name for each class"),
        ({"node_names": ["a", "b"]}, "`node_names` to hold 12 names, one for each node, but got 2"),
        ({"node_names": {12: "a"}}, "`node_names` by number below 12, but got 12"),
        ({"feature_names": ["a"]}, "`feature_names` to hold 4 names, one for each feature column, but got 1"),
        ({"smiles": ["CCO"]}, "`smiles` of one graph to be text"),
    ],
)
def test_names_that_do_not_fit_are_refused(given: dict[str, Any], said: str) -> None:
    model, data = accounts()
    done: list[int] = []
    with pytest.raises(cf2.CF2Error, match=said):
        cf2.explain(model, data, range(12), progress=done.append, **given)
    assert not done, "names are checked before the work begins"


# -- what is told ---------------------------------------------------------------------------------------------


def test_verbose_shows_the_log_once_and_leaves_it_as_it_was(capsys: pytest.CaptureFixture[str]) -> None:
    model, data = accounts()
    before = (list(progress.log.handlers), progress.log.level, progress.log.propagate)
    cf2.explain(model, data, [3], verbose=True)
    shown = capsys.readouterr().err
    assert shown.count("Explaining 1") == shown.count("Explained 1") == 1
    assert (list(progress.log.handlers), progress.log.level, progress.log.propagate) == before
    cf2.explain(model, data, [3])
    assert capsys.readouterr().err == ""
    with pytest.raises(cf2.CF2Error, match="`verbose` to be True or False"):
        cf2.explain(model, data, [3], verbose=3)  # type: ignore[arg-type]


def test_a_bar_comes_by_itself_where_somebody_waits(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    model, data = accounts()
    monkeypatch.setattr(progress, "in_notebook", lambda: True)
    monkeypatch.setattr(progress, "LATER", 600.0)
    cf2.explain(model, data, [3])
    assert capsys.readouterr().err == "", "what is quick has none"
    monkeypatch.setattr(progress, "LATER", 0.0)
    cf2.explain(model, data, [3])
    assert "explained 1 of 1" in capsys.readouterr().err
    cf2.explain(model, data, [3], progress=False)
    assert capsys.readouterr().err == ""


def test_patterns_of_molecules_by_smiles_speak_of_elements_and_bonds() -> None:
    """Features of `from_smiles` are many numbers, which name nothing."""
    pytest.importorskip("rdkit")
    from torch_geometric.utils import from_smiles

    texts = [f"O=[N+]([O-])c1ccccc1{'C' * n}" for n in range(6)] + ["C" * n + "O" for n in range(1, 7)]
    graphs = [from_smiles(text) for text in texts]
    found = cf2.explain(CountsNitro(), graphs, effort="quick")
    best = found.patterns(CountsNitro(), graphs).of(1)[0].pattern
    assert sorted(best.labels) == ["N", "O"]
    assert list(best.edge_labels) == ["double"]
    assert found.patterns(CountsNitro(), graphs, labels="degree").of(1)[0].pattern.labels[0].startswith("d")


# -- a class by its name --------------------------------------------------------------------------------------


def test_a_target_is_given_by_its_name() -> None:
    model, data = accounts()
    asked: dict[str, Any] = {"question": "counterfactual", "effort": "quick"}
    names = ["a", "b", "c", "d"][: model(data.x, data.edge_index).size(1)]
    for target, number in (("b", 1), ({3: "b"}, {3: 1}), (["b"], [1])):
        by_name = cf2.explain(model, data, 3, target=target, class_names=names, **asked)  # type: ignore[arg-type]
        by_number = cf2.explain(model, data, 3, target=number, **asked)  # type: ignore[arg-type]
        assert by_name[0].target == by_number[0].target == 1
        assert (by_name[0].selected == by_number[0].selected).all()
    with pytest.raises(cf2.CF2Error, match=r"`target` to be one of a, b.* but got 'x'"):
        cf2.explain(model, data, 3, target="x", class_names=names, **asked)
    with pytest.raises(cf2.CF2Error, match=r"`target` to be a class number.* got 'b' .*Pass class_names=\["):
        cf2.explain(model, data, 3, target="b", **asked)


# -- sizes of another method's answers ------------------------------------------------------------------------


def test_a_method_that_ranks_takes_the_sizes_of_others() -> None:
    model, data = accounts()
    ours = cf2.explain(model, data, range(6))
    sizes = {e.key: e.size for e in ours}
    for given in (ours, sizes, {key: torch.tensor(size) for key, size in sizes.items()}):
        theirs = cf2.explain(model, data, range(6), method="gradient", sizes=given)  # type: ignore[arg-type]
        assert [e.size for e in theirs] == [e.size for e in ours]
    same = cf2.explain(model, data, range(6), method="gradient", k=3)
    fixed = cf2.explain(model, data, range(6), method="gradient", sizes=3)
    assert [e.edges.tolist() for e in fixed] == [e.edges.tolist() for e in same]
    for wrong in ("many", -1, [1, 2], True):
        with pytest.raises(cf2.CF2Error, match="`sizes`"):
            cf2.explain(model, data, [3], method="gradient", sizes=wrong)  # type: ignore[arg-type]
    with pytest.raises(cf2.CF2Error, match=r"a ranking method.*but got 'cf2'"):
        cf2.explain(model, data, [3], sizes=3)
    with pytest.raises(cf2.CF2Error, match="`sizes` for every key, but got none for 7"):
        cf2.explain(model, data, [3, 7], method="gradient", sizes=ours)
