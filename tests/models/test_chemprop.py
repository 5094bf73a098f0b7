"""Chemprop models: every verdict is checked on Chemprop's own batches, edited by hand; no file runs code."""

from __future__ import annotations

import os
import re
import shutil
from pathlib import Path
from typing import Any

import numpy as np
import pandas
import pytest
import torch

import cf2
from cf2.models.chemprop import _messages_passed, featurise

chemprop = pytest.importorskip("chemprop", reason="the extra chemprop is not installed")
pytestmark = pytest.mark.filterwarnings("ignore")  # lightning and torchmetrics warn of their own affairs

from chemprop import data, models, nn  # noqa: E402
from chemprop.data import BatchMolGraph  # noqa: E402
from chemprop.data.molgraph import MolGraph  # noqa: E402
from chemprop.featurizers import SimpleMoleculeMolGraphFeaturizer  # noqa: E402
from rdkit import Chem  # noqa: E402
from sklearn.preprocessing import StandardScaler  # noqa: E402

SMILES = ["CCOc1ccc2nc(S(N)(=O)=O)sc2c1", "CC(O)C#N", "CCN(CC)C=O", "c1ccccc1Cl", "C", "CC(=O)[O-].[Na+]"]
WIDTH = 16


def mpnn(predictor: Any, passing: Any = nn.BondMessagePassing, seed: int = 2, **options: Any) -> Any:
    """A model with random weights, of a seed with which some answers are found for every kind of unit."""
    model = models.MPNN(passing(d_h=WIDTH, **options), nn.NormAggregation(norm=4.0), predictor).eval()
    generator = torch.Generator().manual_seed(seed)
    with torch.no_grad():
        for weights in model.parameters():
            weights.copy_(torch.randn(weights.shape, generator=generator) * 0.45)
    return model


def classifier(**options: Any) -> Any:
    return mpnn(nn.BinaryClassificationFFN(n_tasks=2, input_dim=WIDTH), **options)


def output(model: Any, smiles: str, bonds: set[Any] = frozenset(), atoms: set[int] = frozenset()) -> Any:  # type: ignore[assignment]
    """What the model says of a molecule without some bonds and atoms; NaN if no atom is left."""
    whole = SimpleMoleculeMolGraphFeaturizer()(Chem.MolFromSmiles(smiles))
    ends = [tuple(pair) for pair in whole.edge_index.T.tolist()]
    stay = [c for c, (u, v) in enumerate(ends) if not {(u, v), (v, u)} & bonds and not {u, v} & atoms]
    left = [ends[column] for column in stay]
    opposite = np.array([left.index((v, u)) for u, v in left], dtype=int)
    kept = [atom for atom in range(len(whole.V)) if atom not in atoms]
    if not kept:
        return torch.full((2,), torch.nan)
    columns = np.array([(kept.index(u), kept.index(v)) for u, v in left], dtype=int).reshape(-1, 2).T
    edited = MolGraph(whole.V[kept], whole.E[stay], columns, opposite)
    with torch.no_grad():
        return model(BatchMolGraph([edited]))[0]


def every(smiles: str) -> tuple[set[Any], set[int]]:
    molecule = Chem.MolFromSmiles(smiles)
    return {(b.GetBeginAtomIdx(), b.GetEndAtomIdx()) for b in molecule.GetBonds()}, set(range(molecule.GetNumAtoms()))


def three(model: Any, e: Any, smiles: str, units: Any) -> list[Any]:
    """The outputs on the whole molecule, on the chosen units alone, and without them."""
    bonds, atoms = every(smiles)
    chosen_bonds = {tuple(sorted(map(int, pair))) for pair in e.edges} if "edges" in units else set()
    chosen_atoms = set(e.chosen("nodes")[:, 0].tolist()) if "nodes" in units else set()
    other_bonds = {pair for pair in bonds if tuple(sorted(pair)) not in chosen_bonds} if "edges" in units else set()
    other_atoms = atoms - chosen_atoms if "nodes" in units else set()
    edits = [(set(), set()), (other_bonds, other_atoms), (chosen_bonds, chosen_atoms)]
    return [output(model, smiles, *edit) for edit in edits]


@pytest.mark.parametrize("units", [("edges",), ("nodes",), ("edges", "nodes")])
@pytest.mark.parametrize("passing", [nn.BondMessagePassing, nn.AtomMessagePassing])
def test_verdicts_hold_on_edited_batches(passing: Any, units: Any) -> None:
    model, found_some = classifier(passing=passing), 0
    found = cf2.explain(model, SMILES, target="b", tasks=["a", "b"], units=units)
    for e, smiles in zip(found, SMILES, strict=True):
        outputs = [float(out[1]) for out in three(model, e, smiles, units)]
        whole, only, without = (None if np.isnan(out) else out > 0.5 for out in outputs)
        assert (e.sufficient, e.necessary) == (only == whole, without not in (whole, None))
        found_some += e.status == "found"
    assert found_some > 0


@pytest.mark.parametrize("undirected", [False, True])
def test_a_search_sums_messages_as_chemprop_does_and_leaves_its_forward_as_it_was(undirected: bool) -> None:
    passing = nn.BondMessagePassing(d_h=WIDTH, undirected=undirected).eval()
    molecules = BatchMolGraph([SimpleMoleculeMolGraphFeaturizer()(Chem.MolFromSmiles(text)) for text in SMILES])
    with torch.no_grad():
        assert torch.equal(_messages_passed(passing, molecules), passing(molecules))
    model = classifier(undirected=undirected)
    cf2.explain(model, SMILES[:2], target="b", tasks=["a", "b"])
    assert "forward" not in vars(model.message_passing)


def test_regression_is_in_the_units_of_the_data() -> None:
    scaler = StandardScaler().fit(np.array([[10.0], [30.0]]))
    predictor = nn.RegressionFFN(input_dim=WIDTH, output_transform=nn.UnscaleTransform.from_standard_scaler(scaler))
    model = mpnn(predictor)
    for e, smiles in zip(cf2.explain(model, SMILES[:4], tolerance=3000.0), SMILES, strict=False):
        whole, only, without = (float(out[0]) for out in three(model, e, smiles, ("edges",)))
        assert e.probabilities[0] == pytest.approx(whole, rel=1e-5)
        assert (e.sufficient, e.necessary) == (abs(only - whole) <= 3000, abs(without - whole) > 3000)


def test_the_classes_of_one_task_are_explained() -> None:
    model = mpnn(nn.MulticlassClassificationFFN(3, n_tasks=2, input_dim=WIDTH))
    for e, smiles in zip(cf2.explain(model, SMILES[:4], target="b", tasks=["a", "b"]), SMILES, strict=False):
        whole, only, without = (int(out[1].argmax()) for out in three(model, e, smiles, ("edges",)))
        assert e.prediction == whole
        assert (e.sufficient, e.necessary) == (only == whole, without != whole)
    with pytest.raises(cf2.CF2Error, match="the task to explain"):
        cf2.explain(model, SMILES)


@pytest.mark.parametrize("predictor", [nn.MveFFN, nn.EvidentialFFN])
def test_the_mean_of_a_predictor_with_a_variance_is_explained(predictor: Any) -> None:
    model = mpnn(predictor(input_dim=WIDTH))
    (e,) = cf2.explain(model, SMILES[0], tolerance=1.0)
    assert e.probabilities[0] == pytest.approx(float(output(model, SMILES[0])[0, 0]), rel=1e-4, abs=1e-4)


class Wrapped(torch.nn.Module):
    """A model of which nothing shows that Chemprop is inside."""

    def __init__(self, model: Any) -> None:
        super().__init__()
        self.model = model


@pytest.mark.parametrize("wrapped", [False, True])
def test_a_call_of_your_own_explains_a_checkpoint(tmp_path: Path, wrapped: bool) -> None:
    """A file as `chemprop train` writes it, read by Chemprop's own loader and called by hand."""
    models.save_model(tmp_path / "best.pt", classifier(), ["a", "b"])
    model = models.load_model(tmp_path / "best.pt")

    def call(module: Any, graph: Any) -> Any:
        ends = graph.edge_index.t().tolist()
        batch = object.__new__(BatchMolGraph)
        batch.V, batch.E, batch.edge_index, batch.batch = graph.x, graph.edge_attr, graph.edge_index, graph.batch
        place = {(u, v): column for column, (u, v) in enumerate(ends)}
        batch.rev_edge_index = torch.tensor([place[v, u] for u, v in ends], dtype=torch.long)
        batch._BatchMolGraph__size = int(graph.batch.max()) + 1
        return (module.model if wrapped else module)(batch)

    asked = {"target": 1, "output": "multilabel_probabilities", "units": "edges", "call": call}
    found = cf2.explain(Wrapped(model) if wrapped else model, featurise(model, SMILES), **asked)
    for e, smiles in zip(found, SMILES, strict=True):
        whole, only, without = (float(out[1]) > 0.5 for out in three(model, e, smiles, ("edges",)))
        assert (e.sufficient, e.necessary, e.ranking) == (only == whole, without != whole, "trials")
    assert any(e.status == "found" for e in found)


def test_descriptors_of_a_data_set_reach_the_model() -> None:
    model = mpnn(nn.BinaryClassificationFFN(input_dim=WIDTH + 2 + 3), d_vd=2)
    rng = np.random.default_rng(0)
    points = [data.MoleculeDatapoint.from_smi(smiles, x_d=rng.normal(size=3)) for smiles in SMILES]
    for point in points:
        point.V_d = rng.normal(size=(point.mol.GetNumAtoms(), 2))
    dataset = data.MoleculeDataset(points)
    batch = data.collate_batch([dataset[row] for row in range(len(SMILES))])
    with torch.no_grad():
        wanted = model(batch.bmg, batch.V_d, batch.X_d)[:, 0]
    got = [e.probabilities[0] for e in cf2.explain(model, dataset, effort="quick")]
    assert got == pytest.approx(wanted.tolist(), abs=1e-5)
    with pytest.raises(cf2.CF2Error, match="MoleculeDataset"):
        cf2.explain(model, SMILES)


def test_alternatives_are_other_answers_that_hold() -> None:
    model = classifier()
    found = cf2.explain(model, SMILES[0], target=1, question="counterfactual", alternatives=3)
    sets = [frozenset(tuple(sorted(map(int, pair))) for pair in e.edges) for e in found]
    assert len(set(sets)) == len(sets) > 1
    whole = float(output(model, SMILES[0])[1]) > 0.5
    assert all((float(output(model, SMILES[0], set(own))[1]) > 0.5) != whole for own in sets)


# -- files ----------------------------------------------------------------------------------------------------


@pytest.fixture
def checkpoint(tmp_path: Path) -> Path:
    models.save_model(tmp_path / "model.pt", classifier(), ["a", "b"])
    return tmp_path / "model.pt"


def test_a_checkpoint_is_read_with_the_names_of_its_tasks(checkpoint: Path) -> None:
    by_path = cf2.explain(checkpoint, SMILES[:2], target="b")
    by_model = cf2.explain(classifier(), SMILES[:2], target=1)
    assert [e.edges.tolist() for e in by_path] == [e.edges.tolist() for e in by_model]
    with pytest.raises(cf2.CF2Error, match="one of a, b"):
        cf2.explain(checkpoint, SMILES[:2], target="bb")
    with pytest.raises(cf2.CF2Error, match="one of the tasks a, b, but got None"):
        cf2.explain(checkpoint, SMILES[:2])


class Hostile:
    def __reduce__(self) -> Any:
        return os.mkdir, ("ran",)


def test_code_in_a_checkpoint_is_not_run(checkpoint: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(checkpoint.parent)
    content = torch.load(checkpoint, weights_only=False)
    torch.save({**content, "more": Hostile()}, checkpoint)
    with pytest.raises(cf2.CF2Error, match="mkdir"):
        cf2.explain(checkpoint, SMILES[:1], target="a")
    assert not Path("ran").exists()
    torch.load(checkpoint, weights_only=False)  # as Chemprop reads it: the file does hold code
    assert Path("ran").exists()


def test_the_mean_of_several_models_is_explained(tmp_path: Path) -> None:
    members = [classifier(), classifier(seed=5), classifier(passing=nn.AtomMessagePassing, seed=7)]
    for number, member in enumerate(members):  # as `chemprop train` leaves them
        (tmp_path / f"model_{number}").mkdir()
        models.save_model(tmp_path / f"model_{number}" / "best.pt", member, ["a", "b"])
    found = cf2.explain(tmp_path, SMILES, target="b")
    for e, smiles in zip(found, SMILES, strict=True):
        outputs = [three(member, e, smiles, ("edges",)) for member in members]
        whole, only, without = (float(torch.stack(said)[:, 1].mean()) > 0.5 for said in zip(*outputs, strict=True))
        assert (e.sufficient, e.necessary) == (only == whole, without != whole)
        wanted = torch.stack([said[0] for said in outputs]).mean(0)
        assert e.probabilities == pytest.approx(wanted.tolist(), abs=1e-5)
        assert e.ranking == "gradient"
    assert any(e.status == "found" for e in found)
    by_model = cf2.explain(members, SMILES, target=1)
    assert [e.edges.tolist() for e in by_model] == [e.edges.tolist() for e in found]
    with pytest.raises(cf2.CF2Error, match="the same inputs and outputs"):
        cf2.explain([members[0], mpnn(nn.RegressionFFN(input_dim=WIDTH))], SMILES)
    (tmp_path / "empty").mkdir()
    with pytest.raises(cf2.CF2Error, match="models"):
        cf2.explain(tmp_path / "empty", SMILES)


@pytest.mark.parametrize("units", ["edges", "nodes"])
def test_the_smarts_of_an_answer_matches_its_atoms(tmp_path: Path, units: str) -> None:
    found = cf2.explain(classifier(), SMILES, target=1, units=units)
    found.to_csv(tmp_path / "found.csv")
    written = pandas.read_csv(tmp_path / "found.csv", keep_default_na=False)
    assert written["smarts"].tolist() == [e.smarts or "" for e in found]
    assert any(e.smarts for e in found)
    for e, smiles in zip(found, SMILES, strict=True):
        assert (e.smarts is None) == (e.size == 0)
        if e.smarts is not None:
            part = Chem.MolFromSmarts(e.smarts)
            assert (part.GetNumBonds() if units == "edges" else part.GetNumAtoms()) == e.size
            matches = Chem.MolFromSmiles(smiles).GetSubstructMatches(part, uniquify=False)
            assert set(e.nodes.tolist()) in [set(match) for match in matches]
    found.report(tmp_path / "report.html")
    page = (tmp_path / "report.html").read_text(encoding="utf-8")
    assert all(e.smarts is None or f"<code>{e.smarts}</code>" in page for e in found)


@pytest.mark.parametrize("units", ["edges", "nodes"])
def test_a_counterfactual_molecule_is_one_and_gets_another_answer(units: str) -> None:
    model = classifier()
    asked = {"target": "b", "tasks": ["a", "b"], "question": "counterfactual", "units": units}
    found = cf2.explain(model, SMILES, valid="molecule", **asked)
    table = found.to_pandas()
    assert table["edited_smiles"].notna().tolist() == [e.status == "found" for e in found]
    assert any(e.status == "found" for e in found)
    for e, smiles in zip(found, SMILES, strict=True):
        if e.status == "found":
            assert Chem.MolFromSmiles(e.edited_smiles) is not None
            assert (float(output(model, e.edited_smiles)[1]) > 0.5) != (float(output(model, smiles)[1]) > 0.5)
    with pytest.raises(cf2.CF2Error, match="question='counterfactual'"):
        cf2.explain(model, SMILES, target=1, valid="molecule")


@pytest.mark.parametrize("wrong", ["this is no molecule", "", 3, None])
def test_what_is_no_molecule_is_said_with_its_place(wrong: Any) -> None:
    with pytest.raises(cf2.CF2Error, match="at position 1"):
        cf2.explain(classifier(), ["CC", wrong], target=0)


def test_the_command_writes_a_run_that_is_reported_and_checked(
    checkpoint: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    from typer.testing import CliRunner

    from cf2.cli.commands import app

    monkeypatch.chdir(checkpoint.parent)
    Path("molecules.csv").write_text("name,smiles\n" + "".join(f"m,{smiles}\n" for smiles in SMILES[:3]))
    words = "explain --chemprop model.pt --data molecules.csv --target b --out run"
    for line in (words, "report run -o report.html", "check run"):
        done = CliRunner().invoke(app, line.split())
        assert done.exit_code == 0, done.output
    assert Path("report.html").read_text(encoding="utf-8").count("<svg") >= 3
    from cf2.runs.store import Store

    table = Store.open(Path("run")).explanations("cf2").to_pandas()
    assert table["smiles"].tolist() == SMILES[:3]
    assert table["edges"].tolist() == cf2.explain(checkpoint, SMILES[:3], target="b").to_pandas()["edges"].tolist()


@pytest.mark.data
@pytest.mark.slow
def test_the_page_runs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    page = Path(__file__).parents[2] / "docs" / "chemprop.md"
    shutil.copy(Path(os.environ["CF2_DATA"]) / "Chemprop" / "classification.csv", tmp_path)
    monkeypatch.chdir(tmp_path)
    space: dict[str, Any] = {}
    for block in re.findall(r"^```python\n(.*?)^```$", page.read_text(encoding="utf-8"), re.MULTILINE | re.DOTALL):
        exec(compile(block, str(page), "exec"), space)
    assert len(space["found"]) == 20
    assert any(e.status == "found" for e in space["found"])
    assert Path("report.html").is_file()
