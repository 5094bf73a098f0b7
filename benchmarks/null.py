"""Where there is nothing to find: does a method say so? Molecules with and without a substructure, four layers.

    python benchmarks/null.py [--molecules 800] [--instances 10]

The molecules are those of benzene and fluoride-carbonyl (GraphAttribution), with new labels by RDKit. A molecule with
the substructure has its bonds for truth, any match or all of them being acceptable. In a molecule without it there is
nothing to find: what the model goes by is that nothing is there. Models are trained here in seconds, on as many
molecules with as without; explained are test molecules that are predicted right.

- *nothing %*: of molecules without it, the share in which no edge is marked (`cf2`: no set is found; others choose by
  their own rule, the threshold 0.5); *proved %*: the share of which `cf2` also proves that no set passes both tests.
- *marked*: how many edges are marked there; *PNS %*: whether these decide, over 32 contexts.
- *F1 %*: of molecules with it, against the acceptable truth that fits best; methods that rank choose as many edges as
  the smallest match has.
"""

from __future__ import annotations

import argparse
import json
import sys
import time
from functools import cache
from pathlib import Path

import numpy as np
import torch
from rdkit import Chem
from torch_geometric.data import Data

import cf2
from cf2.methods import registry
from cf2.models.soft_masks import single_thread
from cf2.results.explanation import Explanation
from cf2.samples.storage import data_root

sys.path.insert(0, str(Path(__file__).parent.parent))
import figures
from nets import LAYERS, classes, trained

TASKS = {
    "indole": "c1ccc2c(c1)cc[#7]2",
    "halogen": "[F,Cl,Br,I]",
    "sulfonyl": "S(=O)=O",
    "phosphorus": "[#15]",
    "nitro": "[N+](=O)[O-]",
}
FEWEST = 200  # molecules with the substructure, below which a task is left out
METHODS = ("cf2", "cf2-relaxed", "gnnexplainer", "cf-gnnexplainer", "pgexplainer", "gradient", "random")
ELEMENTS = ("C", "N", "O", "F", "S", "Cl", "Br", "I", "P")
CONTEXTS = 32
Edges = frozenset[tuple[int, int]]


@cache
def molecules() -> list[Chem.Mol]:
    """All molecules of the two files, once each."""
    folder = data_root(None) / "GraphAttribution"
    lines = [line for name in ("benzene", "fluoride-carbonyl") for line in (folder / f"{name}.jsonl").open()]
    smiles = dict.fromkeys(json.loads(line)["smiles"] for line in lines)
    return [molecule for text in smiles if (molecule := Chem.MolFromSmiles(text)) is not None]


def graph(molecule: Chem.Mol, label: int) -> Data:
    """Atoms by element, aromatic or not, and bonds both ways."""
    atoms = [
        [float(atom.GetSymbol() == element) for element in ELEMENTS]
        + [float(atom.GetIsAromatic()), float(atom.GetTotalNumHs())]
        for atom in molecule.GetAtoms()
    ]
    bonds = [(bond.GetBeginAtomIdx(), bond.GetEndAtomIdx()) for bond in molecule.GetBonds()]
    edges = torch.tensor(bonds, dtype=torch.long).view(-1, 2).t()
    return Data(x=torch.tensor(atoms), edge_index=torch.cat([edges, edges.flip(0)], 1), y=torch.tensor([label]))


def truths(molecule: Chem.Mol, pattern: Chem.Mol) -> list[Edges]:
    """The bonds of each match, of a single atom those it has, and those of all matches together."""
    found = []
    for match in molecule.GetSubstructMatches(pattern):
        ends = [(bond.GetBeginAtomIdx(), bond.GetEndAtomIdx()) for bond in molecule.GetBonds()]
        inside = set(match)
        wanted = 2 if len(inside) > 1 else 1
        found.append(frozenset((min(e), max(e)) for e in ends if len(inside & set(e)) >= wanted))
    return [*found, frozenset().union(*found)]


def chosen(e: Explanation) -> Edges:
    return frozenset((min(a, b), max(a, b)) for a, b in e.chosen("edges").tolist())


def f1(edges: Edges, acceptable: list[Edges]) -> float:
    return max(2 * len(edges & true) / max(len(edges) + len(true), 1) for true in acceptable)


def measure(task: str, layer: str, most: int, instances: int) -> list[figures.Row]:
    """The rows of a task and a layer."""
    pattern, everything = Chem.MolFromSmarts(TASKS[task]), molecules()
    order = np.random.default_rng(0).permutation(len(everything)).tolist()
    label = {key: int(everything[key].HasSubstructMatch(pattern)) for key in order}
    sides = [[key for key in order if label[key] == side] for side in (0, 1)]
    if len(sides[1]) < FEWEST:
        return []
    half = min(most // 2, *map(len, sides))
    keys = sides[0][:half] + sides[1][:half]
    graphs = [graph(everything[key], label[key]) for key in keys]
    model, test, accuracy = trained(graphs, epochs=10, layer=layer)
    right = classes(model, [graphs[place] for place in test]).tolist()
    test = [place for place, said in zip(test, right) if said == int(graphs[place].y)]
    without, having = ([place for place in test if int(graphs[place].y) == side][:instances] for side in (0, 1))
    acceptable = {place: truths(everything[keys[place]], pattern) for place in having}
    learn = [place for place in range(len(graphs)) if place not in set(test)][:60]
    rows = []
    for name in METHODS:
        about = registry.get(name)
        more = {} if about.needs != "training" else {"trained": cf2.fit(model, graphs, learn, method=name, seed=0)}
        start = time.process_time()
        nothing = cf2.explain(model, graphs, without, method=name, units="edges", contexts=CONTEXTS, **more)
        sizes = {place: min(map(len, true)) for place, true in acceptable.items()}
        if about.ranks:
            found = [
                cf2.explain(model, graphs, [place], method=name, units="edges", k=max(sizes[place], 1), **more)[0]
                for place in having
            ]
        else:
            found = list(cf2.explain(model, graphs, having, method=name, units="edges", **more))
        marked = [e.size if not about.searches or e.status == "found" else 0 for e in nothing]
        proved = [e.status in ("impossible", "empty") for e in nothing]
        decides = [e.pns[0] if size else 0.0 for e, size in zip(nothing, marked)]
        rows.append(
            {
                "task": task,
                "layer": layer,
                "accuracy %": accuracy,
                "method": name,
                "n": len(nothing),
                "nothing %": float(np.mean([size == 0 for size in marked])),
                "proved %": float(np.mean(proved)) if about.searches else None,
                "marked": float(np.mean(marked)),
                "PNS %": float(np.mean(decides)),
                "n with": len(found),
                "F1 %": float(np.mean([f1(chosen(e), acceptable[e.key]) for e in found])),
                "CPU s": time.process_time() - start,
            }
        )
        print(rows[-1], flush=True)
    return rows


def summary(cells: list[figures.Row]) -> list[figures.Row]:
    """The means of every method over tasks and layers, and how many instances they are of."""
    rows = []
    for name in METHODS:
        own = [cell for cell in cells if cell["method"] == name]
        row: figures.Row = {"method": name, "models": len(own), "n": sum(cell["n"] for cell in own)}
        for field in ("nothing %", "proved %", "marked", "PNS %"):
            values = [cell[field] for cell in own]
            row[field] = None if None in values else float(np.average(values, weights=[cell["n"] for cell in own]))
        row["n with"] = sum(cell["n with"] for cell in own)
        row["F1 %"] = float(np.average([cell["F1 %"] for cell in own], weights=[cell["n with"] for cell in own]))
        rows.append(row)
    return rows


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--molecules", type=int, default=800)
    parser.add_argument("--instances", type=int, default=10, help="so many with and so many without")
    given = parser.parse_args()
    cells: list[figures.Row] = []
    with single_thread():
        for task in TASKS:
            for layer in LAYERS:
                cells += measure(task, layer, given.molecules, given.instances)
                figures.keep_rows("null", summary(cells), "GCN, GIN, GAT and SAGE that the script trains")


if __name__ == "__main__":
    main()
