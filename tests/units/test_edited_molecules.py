"""Counterfactual molecules, rebuilt from `e.apply()` by code of its own, are molecules for RDKit."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import torch
from torch_geometric.data import Data

import cf2
from cf2.errors import CF2Error
from toys import GraphNet

Chem = pytest.importorskip("rdkit.Chem")
ATOMS = ("C", "N", "O", "F", "S", "Cl")
SMILES = ("CCO", "c1ccccc1O", "CC(=O)N", "C1CCNCC1", "CC(C)Cl", "c1ccncc1F", "CSC", "OCC(N)=O", "C1CC1C#N", "CCCCN")


def data_of(text: str) -> Data:
    """A molecule as a graph: one-hot elements, and the order of every bond."""
    molecule = Chem.MolFromSmiles(text)
    Chem.Kekulize(molecule, clearAromaticFlags=True)
    x = torch.zeros(molecule.GetNumAtoms(), len(ATOMS))
    for atom in molecule.GetAtoms():
        x[atom.GetIdx(), ATOMS.index(atom.GetSymbol())] = 1
    bonds = [(b.GetBeginAtomIdx(), b.GetEndAtomIdx(), b.GetBondTypeAsDouble()) for b in molecule.GetBonds()]
    ends = torch.tensor([pair[:2] for pair in bonds]).t()
    order = torch.tensor([pair[2] for pair in bonds])
    return Data(x=x, edge_index=torch.cat([ends, ends.flip(0)], 1), bond=torch.cat([order, order]), smiles=text)


def rebuilt(data: Data) -> Any:
    """The molecule of a graph, from nothing but its tensors."""
    made = Chem.RWMol()
    for row in data.x.tolist():
        made.AddAtom(Chem.Atom(ATOMS[row.index(1.0)]))
    names = {1.0: "SINGLE", 2.0: "DOUBLE", 3.0: "TRIPLE"}
    for (a, b), order in zip(data.edge_index.t().tolist(), data.bond.tolist()):
        if a < b:
            made.AddBond(a, b, getattr(Chem.BondType, names[order]))
    for atom, charge in zip(made.GetAtoms(), data.formal_charge.tolist()):
        atom.SetFormalCharge(charge)
    return made


ASKED: dict[str, Any] = {
    "question": "counterfactual",
    "edits": ("remove", "add", "change"),
    "valid": "molecule",
    "atoms": ATOMS,
    "effort": "quick",
}


@pytest.mark.parametrize("more", [{}, {"max_units": 30, "reduce": "gradient"}, {"charges": True}], ids=str)
def test_every_counterfactual_molecule_is_one_and_has_its_smiles(more: dict[str, Any]) -> None:
    graphs = [data_of(text) for text in SMILES]
    tried, charged = 0, 0
    for seed in range(6):
        found = cf2.explain(GraphNet("gin", len(ATOMS), classes=2, seed=seed).eval(), graphs, **ASKED, **more)
        for e in found.where(status="found"):
            after = e.apply(graphs[e.key])
            made = rebuilt(after)
            Chem.SanitizeMol(made)  # raises if it is no molecule
            assert after.smiles == e.edited_smiles == Chem.MolToSmiles(made)
            assert bool(after.formal_charge.any()) == bool(e.charges)
            assert more.get("charges") or not e.charges
            charged += bool(e.charges)
            assert graphs[e.key].smiles == SMILES[e.key]
            tried += 1
    assert tried >= 15
    assert (charged > 0) == ("charges" in more)


def test_the_report_has_the_molecules_before_and_after(tmp_path: Path) -> None:
    graphs = [data_of(text) for text in SMILES]
    found = cf2.explain(GraphNet("gin", len(ATOMS), classes=2, seed=0).eval(), graphs, **ASKED)
    page = found.report(tmp_path / "report.html").read_text(encoding="utf-8")
    edited = [e for e in found if e.edited_smiles]
    assert edited
    assert all(f"<code>{SMILES[e.key]}</code> → <code>{e.edited_smiles}</code>" in page for e in edited)


def test_bonds_and_charges_are_read_from_smiles() -> None:
    graphs = [data_of(text) for text in SMILES]
    plain = [Data(x=graph.x, edge_index=graph.edge_index, smiles=graph.smiles) for graph in graphs]
    model = GraphNet("gin", len(ATOMS), classes=2, seed=0).eval()
    found, read = (cf2.explain(model, data, **ASKED) for data in (graphs, plain))
    assert [e.edits for e in read] == [e.edits for e in found]
    assert any(e.edits for e in found)
    assert "bond" not in plain[0]
    with pytest.raises(CF2Error, match="`smiles`, or `bond`"):
        cf2.explain(model, [Data(x=graphs[0].x, edge_index=graphs[0].edge_index)], **ASKED)


@pytest.mark.parametrize(
    ("text", "edits", "charges", "after"),
    [
        ("CN(C)C.C", [("add", (1, 4))], False, None),  # a fourth bond makes N⁺
        ("CN(C)C.C", [("add", (1, 4))], True, "C[N+](C)(C)C"),
        ("C[N+](=O)[O-]", [], False, "C[N+](=O)[O-]"),
        ("C[N+](=O)[O-]", [("remove", (1, 3))], False, "CN=O.O"),  # what is touched is neutral where it can be
        ("CC[N+](=O)[O-]", [("remove", (0, 1))], False, "C.C[N+](=O)[O-]"),
    ],
)
def test_charges_that_edits_imply(text: str, edits: Any, charges: bool, after: str | None) -> None:
    from cf2.units.molecules import edited_molecule, smiles_of

    assert smiles_of(edited_molecule(text, edits, charges=charges)) == after


def test_another_encoding_of_bonds_is_refused() -> None:
    graph = data_of("CC(=O)N")
    graph.bond = torch.where(graph.bond == 2, 12.0, graph.bond)
    with pytest.raises(CF2Error, match=r"1\.5 for aromatic ones, but got 12"):
        cf2.explain(GraphNet("gin", len(ATOMS), classes=2).eval(), [graph], **ASKED)


def test_a_molecule_that_rdkit_does_not_take_has_no_smiles() -> None:
    graph = data_of("CC")
    (e,) = cf2.explain(GraphNet("gin", len(ATOMS), classes=2).eval(), [graph], **(ASKED | {"valid": None}))
    from cf2.units.molecules import edited_molecule, smiles_of

    crowded = [("change", (0, 3), 0.0, 1.0), ("change", (1, 3), 0.0, 1.0)]
    assert smiles_of(edited_molecule("CC", crowded, atoms=ATOMS)) == "FF"
    assert edited_molecule("C=C", crowded, atoms=ATOMS) is None
    assert e.apply(graph).num_nodes == 2
