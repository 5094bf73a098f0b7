"""Where there is nothing to find: does a method say so? Molecules with and without a substructure, four layers.

    python benchmarks/null.py [--molecules 800] [--instances 10]

The molecules are those of benzene and fluoride-carbonyl (GraphAttribution), with new labels by RDKit. Explained are the
atoms of test molecules that are predicted right. With the substructure the truth is any match, or all of them; without
it there is nothing to find, if what the model goes by is that nothing is there. That is so for a model that is right on
parts of molecules, and many are not: of a molecule without halogens they say that a part has one. So each model is
trained twice, on molecules alone, and on molecules and random parts of them with the labels that these have.

- *parts right %*: of random parts of molecules without the substructure, how many are predicted so.
- *nothing %*: of molecules without it, the share in which no atom is marked (`cf2`: no set is found; others choose by
  their own rule, the threshold 0.5); *proved %*: the share of which `cf2` also proves that no set passes both tests.
- *marked*: how many atoms are marked there; *PNS %*: whether these decide, over 32 contexts.
- *F1 %*: of molecules with it, against the acceptable truth that fits best; methods that rank choose as many atoms as
  the smallest match has.
"""

from __future__ import annotations

import argparse
import json
from functools import cache
from itertools import combinations
from typing import Any

import figures
import numpy as np
import torch
from nets import LAYERS, MaxPooled, classes, trained
from rdkit import Chem
from torch_geometric.data import Batch, Data
from torch_geometric.utils import subgraph

import cf2
from cf2.methods import registry
from cf2.models.soft_masks import single_thread
from cf2.results.explanation import Explanation
from cf2.samples.storage import data_root

TASKS: dict[str, str | int] = {
    "indole": "c1ccc2c(c1)cc[#7]2",
    "halogen": "[F,Cl,Br,I]",
    "sulfonyl": "S(=O)=O",
    "phosphorus": "[#15]",
    "nitro": "[N+](=O)[O-]",
    "ring of five": "*~1~*~*~*~*~1",
    "two rings": 2,
}  # SMARTS, or how many rings
FEWEST = 200  # molecules with the substructure, below which a task is left out
METHODS = ("cf2", "cf2-relaxed", "gnnexplainer", "cf-gnnexplainer", "gradient", "random")
ELEMENTS = ("C", "N", "O", "F", "S", "Cl", "Br", "I", "P")
CONTEXTS = 32
LEAST_ACCURATE = 0.95  # below, a model does not go by the substructure, and is left out
DRAWS = 10  # parts of each test molecule
WIDEST = 64  # atoms of a match; shorter ones repeat an atom
COLUMNS = ("trained on", "method", "nothing %", "F1 %", "parts right %", "proved %", "marked", "PNS %")
COLUMNS += ("models", "n", "n with")
Atoms = frozenset[int]


@cache
def molecules() -> list[Chem.Mol]:
    """All molecules of the two files, once each."""
    folder = data_root(None) / "GraphAttribution"
    lines = [line for name in ("benzene", "fluoride-carbonyl") for line in (folder / f"{name}.jsonl").open()]
    smiles = dict.fromkeys(json.loads(line)["smiles"] for line in lines)
    return [molecule for text in smiles if (molecule := Chem.MolFromSmiles(text)) is not None]


def matches_in(molecule: Chem.Mol, wanted: Chem.Mol | int) -> list[Atoms]:
    """The atoms of each match of a pattern, or of each choice of so many rings."""
    if isinstance(wanted, int):
        rings = combinations(molecule.GetRingInfo().AtomRings(), wanted)
        return [frozenset().union(*some) for some in rings]
    return [frozenset(match) for match in molecule.GetSubstructMatches(wanted)]


def graph(molecule: Chem.Mol, wanted: Chem.Mol | int) -> Data:
    """Atoms by element, aromatic or not, and hydrogens; bonds both ways; the atoms [atoms, matches] of each match."""
    atoms = [
        [float(atom.GetSymbol() == element) for element in ELEMENTS]
        + [float(atom.GetIsAromatic()), float(atom.GetTotalNumHs())]
        for atom in molecule.GetAtoms()
    ]
    bonds = [(bond.GetBeginAtomIdx(), bond.GetEndAtomIdx()) for bond in molecule.GetBonds()]
    edges = torch.tensor(bonds, dtype=torch.long).view(-1, 2).t()
    wide = [[*match, *[min(match)] * (WIDEST - len(match))] for match in matches_in(molecule, wanted)]
    matches = torch.tensor(wide, dtype=torch.long).view(-1, WIDEST).t()
    label = torch.tensor([int(matches.numel() > 0)])
    edge_index = torch.cat([edges, edges.flip(0)], 1)
    return Data(x=torch.tensor(atoms), edge_index=edge_index, y=label, match_index=matches.contiguous())


def parts(batch: Batch) -> Batch:
    """A random part of each molecule, of any share of its atoms, and whether a match is left whole."""
    share = torch.rand(batch.num_graphs)
    kept = torch.rand(batch.num_nodes) < share[batch.batch]
    kept[batch.ptr[:-1]] = True  # a graph without nodes has no maximum
    edge_index, _ = subgraph(kept, batch.edge_index, relabel_nodes=True, num_nodes=batch.num_nodes)
    whole = kept[batch.match_index].all(0)
    y = torch.zeros(batch.num_graphs, dtype=torch.long)
    y[batch.batch[batch.match_index[0, whole]]] = 1
    return Batch(x=batch.x[kept], edge_index=edge_index, batch=batch.batch[kept], y=y)


@torch.no_grad()
def right_on_parts(model: MaxPooled, graphs: list[Data]) -> float:
    """The share of random parts of graphs that the model predicts right."""
    torch.manual_seed(0)
    drawn = [parts(Batch.from_data_list(graphs)) for _ in range(DRAWS)]
    said = [model(part.x, part.edge_index, part.batch).argmax(1) == part.y for part in drawn]
    return float(torch.stack(said).float().mean())


def chosen(e: Explanation) -> Atoms:
    return frozenset(e.chosen("nodes")[:, 0].tolist())


def f1(atoms: Atoms, acceptable: list[Atoms]) -> float:
    return max(2 * len(atoms & true) / max(len(atoms) + len(true), 1) for true in acceptable)


def measure(task: str, layer: str, most: int, instances: int) -> list[figures.Row]:
    """The rows of a task and a layer."""
    asked, everything = TASKS[task], molecules()
    wanted = asked if isinstance(asked, int) else Chem.MolFromSmarts(asked)
    order = np.random.default_rng(0).permutation(len(everything)).tolist()
    having = {key: bool(matches_in(everything[key], wanted)) for key in order}
    sides = [[key for key in order if having[key] == side] for side in (False, True)]
    if min(map(len, sides)) < FEWEST:
        return []
    half = min(most // 2, *map(len, sides))
    labelled = [graph(everything[key], wanted) for key in sides[0][:half] + sides[1][:half]]
    plain = [Data(x=made.x, edge_index=made.edge_index) for made in labelled]
    rows = []
    for learned, beside in (("molecules", None), ("and parts", parts)):
        model, test, accuracy = trained(labelled, epochs=20, layer=layer, beside=beside)
        if accuracy < LEAST_ACCURATE:
            print(f"{task}, {layer}, trained on {learned}: left out, {100 * accuracy:.1f} % are right", flush=True)
            continue
        said = classes(model, [labelled[place] for place in test]).tolist()
        right = [place for place, label in zip(test, said) if label == int(labelled[place].y)]
        without, with_it = ([place for place in right if int(labelled[place].y) == side] for side in (0, 1))
        about = {"trained on": learned, "accuracy %": accuracy}
        about["parts right %"] = right_on_parts(model, [labelled[place] for place in without])
        acceptable: dict[int, list[Atoms]] = {}
        for place in with_it[:instances]:
            matches = [frozenset(match) for match in labelled[place].match_index.t().tolist()]
            acceptable[place] = [*matches, frozenset().union(*matches)]
        for name in METHODS:
            found = explained(model, plain, name, without[:instances], acceptable)
            rows.append({"task": task, "layer": layer, **about, "method": name, **found})
            print(rows[-1], flush=True)
    return rows


def explained(
    model: MaxPooled, graphs: list[Data], name: str, without: list[int], acceptable: dict[int, list[Atoms]]
) -> figures.Row:
    """What a method says of molecules without the substructure, and of those with acceptable truths."""
    about = registry.get(name)
    ask: dict[str, Any] = {"method": name, "units": "nodes"}
    nothing = cf2.explain(model, graphs, without, contexts=CONTEXTS, **ask)
    marked = [e.size if not about.searches or e.status == "found" else 0 for e in nothing]
    if about.ranks:
        sized = {place: min(map(len, true)) for place, true in acceptable.items()}
        found = [cf2.explain(model, graphs, [place], k=size, **ask)[0] for place, size in sized.items()]
    else:
        found = list(cf2.explain(model, graphs, list(acceptable), **ask))
    return {
        "n": len(nothing),
        "nothing %": float(np.mean([size == 0 for size in marked])),
        "proved %": float(np.mean([e.status in ("impossible", "empty") for e in nothing])) if about.searches else None,
        "marked": float(np.mean(marked)),
        "PNS %": float(np.mean([e.pns[0] if size else 0.0 for e, size in zip(nothing, marked)])),
        "n with": len(found),
        "F1 %": float(np.mean([f1(chosen(e), acceptable[e.key]) for e in found])),
    }


def summary(cells: list[figures.Row]) -> list[figures.Row]:
    """The means over tasks and layers, by what the models are trained on and method."""
    rows = []
    for learned, name in dict.fromkeys((cell["trained on"], cell["method"]) for cell in cells):
        own = [cell for cell in cells if (cell["trained on"], cell["method"]) == (learned, name)]
        row: figures.Row = {"trained on": learned, "method": name, "models": len(own)}
        for count, fields in (
            ("n", ("parts right %", "nothing %", "proved %", "marked", "PNS %")),
            ("n with", ("F1 %",)),
        ):
            row[count] = sum(cell[count] for cell in own)
            for field in fields:
                values = [cell[field] for cell in own]
                row[field] = (
                    None if None in values else float(np.average(values, weights=[cell[count] for cell in own]))
                )
        rows.append({field: row[field] for field in COLUMNS})
    return rows


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--molecules", type=int, default=800)
    parser.add_argument("--instances", type=int, default=10, help="so many with and so many without")
    parser.add_argument("--tasks", nargs="*", default=list(TASKS), help="some of them; nothing is kept then")
    given = parser.parse_args()
    cells: list[figures.Row] = []
    with single_thread():
        for task in given.tasks:
            for layer in LAYERS:
                cells += measure(task, layer, given.molecules, given.instances)
    rows = summary(cells)
    if given.tasks == list(TASKS):
        figures.keep_rows("null", rows, "GCN, GIN, GAT and SAGE that the script trains")
    print(*rows, sep="\n")


if __name__ == "__main__":
    main()
