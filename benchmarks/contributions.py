"""Agreement with what every atom contributes to logP (Crippen), for `benchmarks/tasks.py`.

The contribution of an atom is a number of its type, and its type depends on its neighbours. So there are two questions
that look alike: what is the share of this atom, and what is lost without it. The rows at the end of the table ask the
second one of single atoms, of the model and of Crippen's own formula, which has no model in it.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import torch
from rdkit import Chem
from rdkit.Chem import rdMolDescriptors
from scipy import stats
from torch_geometric.data import Batch, Data

from cf2.runs.source import ModelAndData

Row = dict[str, Any]
Compared = list[tuple[np.ndarray, np.ndarray]]  # of each molecule, two numbers per atom


def against_contributions(source: ModelAndData, found: Any) -> Row:
    """Rank and sign agreement with the share of each atom in logP."""
    ranks, changes, shares = [], [], []
    for e in found:
        true = source.graphs[e.key].contribution.numpy()
        atoms = e.units.ids[:, 0]
        if len(atoms) > 2 and np.ptp(e.scores) > 0 and np.ptp(np.abs(true[atoms])) > 0:
            ranks.append(stats.spearmanr(e.scores, np.abs(true[atoms])).statistic)
        if e.selected.any():
            changes.append(float(e.probabilities[0] - e.probabilities_without[0]))
            shares.append(float(true[atoms[e.selected]].sum()))
    sign = 100 * float(np.mean(np.sign(changes) == np.sign(shares))) if changes else float("nan")
    amount = stats.spearmanr(changes, shares).statistic if len(changes) > 2 else float("nan")
    return {"rank": float(np.mean(ranks)) if ranks else float("nan"), "sign": sign, "amount": float(amount)}


def single_atoms(source: ModelAndData, keys: list[Any]) -> list[Row]:
    """What is lost with one atom, beside its contribution; and the model beside the formula."""
    zeroed, removed, formula, both = [], [], [], []
    for key in keys:
        graph = source.graphs[key]
        true = graph.contribution.numpy()
        with_zeros, without = _lost_by_the_model(source, graph)
        by_formula = lost_by_the_formula(graph.smiles)
        zeroed.append((with_zeros, true))
        removed.append((without, true))
        formula.append((by_formula, true))
        both.append((without, by_formula))
    return [
        {"asked": "model, features of one atom 0", **_agreement(zeroed)},
        {"asked": "model, one atom removed", **_agreement(removed)},
        {"asked": "Crippen's formula, one atom removed", **_agreement(formula)},
        {"asked": "model beside the formula, one atom removed", **_agreement(both)},
    ]


def _lost_by_the_model(source: ModelAndData, graph: Any) -> tuple[np.ndarray, np.ndarray]:
    """What the prediction loses with the features of each atom, and with these and its bonds (`units="nodes"`)."""
    zeroed, removed = [], []
    for atom in range(graph.num_nodes):
        x, stay = graph.x.clone(), (graph.edge_index != atom).all(0)
        x[atom] = 0
        zeroed.append(Data(x=x, edge_index=graph.edge_index, edge_attr=graph.edge_attr))
        removed.append(Data(x=x, edge_index=graph.edge_index[:, stay], edge_attr=graph.edge_attr[stay]))
    whole = Data(x=graph.x, edge_index=graph.edge_index, edge_attr=graph.edge_attr)
    batch = Batch.from_data_list([whole, *zeroed, *removed])
    with torch.no_grad():
        said = source.model(batch.x, batch.edge_index, batch.edge_attr, batch.batch).view(-1).numpy()
    without_features, without_atom = np.split(said[0] - said[1:], 2)
    return without_features, without_atom


def lost_by_the_formula(smiles: str) -> np.ndarray:
    """What Crippen's logP of a molecule loses with each atom; its neighbours get hydrogens in its place."""
    whole = Chem.MolFromSmiles(smiles)
    plain = Chem.Mol(whole)
    Chem.Kekulize(plain, clearAromaticFlags=True)
    lost = []
    for atom in plain.GetAtoms():
        rest = Chem.RWMol(plain)
        for bond in atom.GetBonds():
            other = rest.GetAtomWithIdx(bond.GetOtherAtomIdx(atom.GetIdx()))
            if other.GetNoImplicit():  # written in brackets: RDKit adds no hydrogens by itself
                other.SetNumExplicitHs(other.GetNumExplicitHs() + int(bond.GetBondTypeAsDouble()))
        rest.RemoveAtom(atom.GetIdx())
        Chem.SanitizeMol(rest)
        lost.append(_logp(whole) - _logp(rest))
    return np.array(lost)


def _logp(molecule: Any) -> float:
    return sum(share for share, _ in rdMolDescriptors._CalcCrippenContribs(Chem.AddHs(molecule)))


def _agreement(compared: Compared) -> Row:
    """Spearman's correlation of sizes and of signed numbers, means over molecules, and the share of equal signs."""
    sizes = [stats.spearmanr(*np.abs(pair)).statistic for pair in compared if min(np.ptp(np.abs(pair), axis=1)) > 0]
    signed = [stats.spearmanr(*pair).statistic for pair in compared if min(np.ptp(pair, axis=1)) > 0]
    signs = np.concatenate([np.sign(one) == np.sign(other) for one, other in compared])
    return {
        "n": len(compared),
        "rank": float(np.mean(sizes)),
        "sign": 100 * float(np.mean(signs)),
        "signed rank": float(np.mean(signed)),
    }
