"""Molecules with the truth of each atom: read line by line, checked, and explained by the bonds of the right atoms."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
import torch

import cf2
from cf2.errors import CF2Error
from cf2.samples import registry as datasets
from cf2.samples import training
from cf2.samples.models import ARCHITECTURES, build
from reproduction import tasks

pytest.importorskip("rdkit")
pytestmark = pytest.mark.usefixtures("cache")

TOLUENE = {"id": "a", "smiles": "Cc1ccccc1", "y": 1, "truth": [[1, 2, 3, 4, 5, 6]], "test": False}
RINGS = [[0, 1, 2, 3, 4, 5], [6, 7, 8, 9, 10, 11]]
BIPHENYL = {"id": "b", "smiles": "c1ccccc1c1ccccc1", "y": 1, "truth": [*RINGS, RINGS[0] + RINGS[1]], "test": True}
PYRIDINE = {"id": "c", "smiles": "c1ccncc1", "y": 0, "truth": [], "test": True}
ACETATE = {"id": "d", "smiles": "CC(=O)[O-]", "y": 0, "truth": [], "test": False}


def write(root: Path, *rows: Any, name: str = "benzene") -> Path:
    path = root / "GraphAttribution" / f"{name}.jsonl"
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text("".join((row if isinstance(row, str) else json.dumps(row)) + "\n" for row in rows))
    return root


ROWS = (TOLUENE, BIPHENYL, PYRIDINE, ACETATE)


def bonds(dataset: datasets.Dataset, key: int, mask: torch.Tensor) -> set[frozenset[int]]:
    return {frozenset(pair) for pair in dataset.graphs[key].edge_index[:, mask].t().tolist()}


def ring(atoms: list[int]) -> set[frozenset[int]]:
    return {frozenset((a, b)) for a, b in zip(atoms, atoms[1:] + atoms[:1])}


def test_every_ring_is_an_acceptable_explanation_and_the_truth_is_all_of_them(tmp_path: Path) -> None:
    dataset = datasets.load("benzene", root=write(tmp_path, *ROWS))
    assert [graph.smiles for graph in dataset.graphs] == [row["smiles"] for row in ROWS]
    assert dataset.labels.tolist() == [1, 1, 0, 0]
    (only,) = dataset.truths(0)
    assert bonds(dataset, 0, only) == ring([1, 2, 3, 4, 5, 6])
    first, second, both = (bonds(dataset, 1, mask) for mask in dataset.truths(1))
    assert (first, second) == (ring(RINGS[0]), ring(RINGS[1]))
    assert both == first | second | {frozenset((5, 6))}  # atoms 5 and 6 are bound, and both are in the set
    assert bonds(dataset, 1, dataset.truth(1)) == both
    assert dataset.truths(2) == []
    assert dataset.truth(2) is None
    assert dataset.has_truth


def test_features_say_the_element_and_edges_the_bond(tmp_path: Path) -> None:
    acetate = datasets.load("benzene", root=write(tmp_path, *ROWS)).graphs[3]
    assert [tasks.ATOMS[i] for i in acetate.x.argmax(1)] == ["C", "C", "O", "O"]
    found = {tuple(pair): row for pair, row in zip(acetate.edge_index.t().tolist(), acetate.edge_attr.tolist())}
    single, double = [1.0, 0, 0, 0], [0, 1.0, 0, 0]
    wanted = {(0, 1): single, (1, 2): double, (1, 3): single}
    assert found == {**wanted, **{pair[::-1]: row for pair, row in wanted.items()}}
    aromatic = datasets.load("benzene", root=tmp_path).graphs[2]
    assert aromatic.edge_attr.tolist() == [[0, 0, 0, 1.0]] * 12
    assert aromatic.bond.tolist() == [1.5] * 12


def test_an_atom_without_another_of_the_set_stands_for_its_bonds(tmp_path: Path) -> None:
    row = {"id": "e", "smiles": "FCC(C)=O", "y": 1, "truth": [[0, 2, 4]], "test": True}
    dataset = datasets.load("fluoride-carbonyl", root=write(tmp_path, row, ACETATE, name="fluoride-carbonyl"))
    (found,) = dataset.truths(0)
    assert bonds(dataset, 0, found) == {frozenset((0, 1)), frozenset((2, 4))}


def test_the_split_is_that_of_the_file_and_the_file_decides_the_fingerprint(tmp_path: Path) -> None:
    dataset = datasets.load("benzene", root=write(tmp_path, *ROWS))
    train, test = datasets.split(dataset, 3)
    assert (sorted(train.tolist()), test.tolist()) == ([0, 3], [1, 2])
    chosen = datasets.instances_to_explain(dataset, test, torch.tensor([1, 1]))
    assert chosen.tolist() == [1]
    before = dataset.fingerprint()
    assert datasets.load("benzene", root=tmp_path).fingerprint() == before
    write(tmp_path, TOLUENE, BIPHENYL, PYRIDINE, {**ACETATE, "test": True})
    assert datasets.load("benzene", root=tmp_path).fingerprint() != before


def test_contributions_sum_to_the_logp_of_rdkit(tmp_path: Path) -> None:
    from rdkit import Chem
    from rdkit.Chem import Crippen

    fourth = {**BIPHENYL, "smiles": "C[NH+](C)Cc1ccncc1", "truth": [], "y": 0}
    dataset = datasets.load("crippen", root=write(tmp_path, TOLUENE, PYRIDINE, ACETATE, fourth))
    assert [graph.smiles for graph in dataset.graphs] == [TOLUENE["smiles"], fourth["smiles"]]
    for graph in dataset.graphs:
        molecule = Chem.MolFromSmiles(graph.smiles)
        assert float(graph.y) == pytest.approx(Crippen.MolLogP(molecule), abs=1e-5)
        assert float(graph.contribution.sum()) == pytest.approx(float(graph.y), abs=1e-5)
        assert len(graph.contribution) == molecule.GetNumAtoms()
        columns = graph.x.argmax(1).tolist()
        assert [dataset.atoms[i] for i in columns] == [atom.GetSymbol() for atom in molecule.GetAtoms()]
    charged = [i // len(tasks.ATOMS) for i in dataset.graphs[1].x.argmax(1).tolist()]
    assert charged == [0, 1, 0, 0, 0, 0, 0, 0, 0, 0]
    methyl = dataset.graphs[0].contribution[0]  # C8 and three H1, as Wildman and Crippen (1999) list them
    assert float(methyl) == pytest.approx(0.08452 + 3 * 0.1230, abs=1e-4)
    assert dataset.truth(0) is None
    assert datasets.statistics("crippen", root=tmp_path)["labels"] == {}


LINES: dict[str, tuple[Any, str]] = {
    "no json": ("{", "JSON on line 2"),
    "a list": ([], "something else on line 2"),
    "truth of nothing": ({**TOLUENE, "y": 0}, "exactly where y is 1"),
    "a word": ({**TOLUENE, "truth": [["1"]]}, "something else on line 2"),
    "an atom too many": ({**TOLUENE, "truth": [[7]]}, "atoms 0 to 6 on line 2, but got atom 7"),
    "no molecule": ({**TOLUENE, "smiles": "C(C"}, "a molecule on line 2"),
    "no atoms": ({**TOLUENE, "smiles": ""}, "a molecule on line 2"),
    "a strange element": ({**TOLUENE, "smiles": "CCCCCC[Na]"}, "Na"),
    "a strange bond": ({**TOLUENE, "smiles": "N->[P]CCCCC"}, "aromatic bonds on line 2"),
}


@pytest.mark.parametrize("case", LINES)
def test_lines_that_cannot_be_are_refused(tmp_path: Path, case: str) -> None:
    row, says = LINES[case]
    with pytest.raises(CF2Error) as error:
        datasets.load("benzene", root=write(tmp_path, BIPHENYL, row, ACETATE))
    assert says in str(error.value)
    assert "benzene.jsonl" in str(error.value)


def test_a_file_of_one_kind_or_none_is_refused(tmp_path: Path) -> None:
    with pytest.raises(CF2Error, match="for training and for testing"):
        datasets.load("benzene", root=write(tmp_path, TOLUENE, ACETATE))
    for name in ("benzene", "fluoride-carbonyl", "crippen"):
        with pytest.raises(CF2Error, match=r"GraphAttribution/[a-z-]+\.jsonl, and it is missing.*CF2_DATA"):
            datasets.load(name, root=tmp_path / "nowhere")


@pytest.mark.parametrize("arch", ARCHITECTURES)
@pytest.mark.parametrize("pool", ["mean", "sum"])
def test_every_layer_reads_the_bonds(tmp_path: Path, arch: str, pool: str) -> None:
    graphs = datasets.load("benzene", root=write(tmp_path, *ROWS)).graphs
    torch.manual_seed(1)
    shape = {"num_features": 9, "num_classes": 2, "hidden": 8, "num_edge_features": 4}
    model = build(arch, task="graph", pool=pool, **shape).eval()
    one = graphs[3]  # with atoms of two kinds: attention over equal neighbours could not tell bonds apart
    found = model(one.x, one.edge_index, one.edge_attr)
    assert found.shape == (1, 2)
    assert not torch.allclose(found, model(one.x, one.edge_index, one.edge_attr.roll(1, 1)), atol=1e-6)
    from torch_geometric.data import Batch

    batch = Batch.from_data_list(graphs, exclude_keys=["truth"])
    rows = model(batch.x, batch.edge_index, batch.edge_attr, batch.batch)
    torch.testing.assert_close(rows[3:], found)


def test_a_number_is_learned_and_scored_by_r2(tmp_path: Path) -> None:
    chains = [f"{'C' * a}{'O' * (b % 2)}{'C' * b}" for a in range(1, 9) for b in range(1, 9)]
    empty = {"y": 0, "truth": []}
    rows = [{"smiles": s, "test": i % 5 == 0, **empty} for i, s in enumerate(chains) for _ in range(3)]
    dataset = datasets.load("crippen", root=write(tmp_path, *rows))
    assert len(dataset) == len(chains)
    heard: list[float] = []
    model, about = training.train(dataset, epochs=60, batch_size=16, progress=lambda *news: heard.append(news[3]))
    assert about.metric == "R²"
    assert heard[-1] > heard[0]
    _, tests = datasets.split(dataset)
    found, known = training.predict(model, dataset)[tests], dataset.labels[tests]
    r2 = 1 - float(((found - known) ** 2).sum() / ((known - known.mean()) ** 2).sum())
    assert about.test_accuracy == pytest.approx(r2, abs=1e-5)
    assert r2 > 0.5


# -- the real files and the shipped models ------------------------------------------------------------------------


@pytest.mark.data
@pytest.mark.parametrize(
    ("name", "graphs", "positive", "tests"), [("benzene", 12_000, 6_001, 2_000), ("fluoride-carbonyl", 4_326, 375, 486)]
)
def test_the_real_files_have_the_sizes_of_graphattribution(name: str, graphs: int, positive: int, tests: int) -> None:
    dataset = datasets.load(name)
    assert (len(dataset), int(dataset.labels.sum()), len(dataset.test_ids)) == (graphs, positive, tests)
    explained = (dataset.labels == 1).nonzero().view(-1).tolist()
    for key in explained[::50]:
        assert all(bool(mask.any()) for mask in dataset.truths(key))
    if name == "benzene":
        assert {int(dataset.truths(key)[0].sum()) for key in explained[:200]} == {12}  # six bonds, both ways


@pytest.mark.data
@pytest.mark.parametrize("name", ["benzene", "fluoride-carbonyl"])
def test_explanations_of_the_shipped_models_are_verified(name: str) -> None:
    """What `cf2.explain` says of two molecules, run again by hand."""
    dataset = datasets.load(name)
    model, about = training.load(name, dataset)
    _, tests = datasets.split(dataset, about.seed)
    chosen = datasets.instances_to_explain(dataset, tests, training.predict(model, dataset))[:2].tolist()
    for e in cf2.explain(model, [dataset.graphs[key] for key in chosen]):
        graph, picked = dataset.graphs[chosen[e.key]], {frozenset(pair) for pair in e.edges.tolist()}
        inside = torch.tensor([frozenset(pair) in picked for pair in graph.edge_index.t().tolist()])
        for keep, verdict in ((inside, e.sufficient), (~inside, not e.necessary)):
            with torch.no_grad():
                row = model(graph.x, graph.edge_index[:, keep], graph.edge_attr[keep])
            assert (int(row.argmax()) == e.prediction) == verdict
        assert e.status == "found"
