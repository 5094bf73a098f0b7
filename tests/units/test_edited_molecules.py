"""Counterfactual molecules, rebuilt from `e.apply()` by code of its own, are molecules for RDKit."""

from __future__ import annotations

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


CHARGED = {("N", 4): 1, ("O", 3): 1, ("S", 3): 1}  # as data sets write ions: without a charge


def rebuilt(data: Data) -> Any:
    """The molecule of a graph, from nothing but its tensors."""
    made = Chem.RWMol()
    for row in data.x.tolist():
        made.AddAtom(Chem.Atom(ATOMS[row.index(1.0)]))
    names = {1.0: "SINGLE", 2.0: "DOUBLE", 3.0: "TRIPLE"}
    for (a, b), order in zip(data.edge_index.t().tolist(), data.bond.tolist()):
        if a < b:
            made.AddBond(a, b, getattr(Chem.BondType, names[order]))
    for atom in made.GetAtoms():
        total = int(sum(bond.GetBondTypeAsDouble() for bond in atom.GetBonds()))
        atom.SetFormalCharge(CHARGED.get((atom.GetSymbol(), total), 0))
    return made


ASKED: dict[str, Any] = {
    "question": "counterfactual",
    "edits": ("remove", "add", "change"),
    "valid": "molecule",
    "atoms": ATOMS,
    "effort": "quick",
}


@pytest.mark.parametrize("more", [{}, {"max_units": 30, "reduce": "gradient"}], ids=["all units", "some units"])
def test_every_counterfactual_molecule_is_one_and_has_its_smiles(more: dict[str, Any]) -> None:
    graphs = [data_of(text) for text in SMILES]
    tried = 0
    for seed in range(6):
        found = cf2.explain(GraphNet("gin", len(ATOMS), classes=2, seed=seed).eval(), graphs, **ASKED, **more)
        for e in found.where(status="found"):
            after = e.apply(graphs[e.key])
            made = rebuilt(after)
            Chem.SanitizeMol(made)  # raises if it is no molecule
            charged = any(atom.GetFormalCharge() for atom in made.GetAtoms())
            assert charged or after.smiles == Chem.MolToSmiles(made)
            assert graphs[e.key].smiles == SMILES[e.key]
            tried += 1
    assert tried >= 15


def test_another_encoding_of_bonds_is_refused() -> None:
    graph = data_of("CC(=O)N")
    graph.bond = torch.where(graph.bond == 2, 12.0, graph.bond)
    with pytest.raises(CF2Error, match=r"1\.5 for aromatic ones, but got 12"):
        cf2.explain(GraphNet("gin", len(ATOMS), classes=2).eval(), [graph], **ASKED)


def test_a_molecule_that_rdkit_does_not_take_has_no_smiles() -> None:
    graph = data_of("CC")
    (e,) = cf2.explain(GraphNet("gin", len(ATOMS), classes=2).eval(), [graph], **(ASKED | {"valid": None}))
    from cf2.units.molecules import edited_smiles

    crowded = [("change", (0, 3), 0.0, 1.0), ("change", (1, 3), 0.0, 1.0)]
    assert edited_smiles("CC", 2, crowded, {"atoms": ATOMS}) == "FF"
    assert edited_smiles("C=C", 2, crowded, {"atoms": ATOMS}) is None
    assert e.apply(graph).num_nodes == 2
