"""Patterns against functional groups that are known: a single group, a group inside others, and a conjunction.

    python benchmarks/groups.py DIRECTORY [--keys 300] [--write]

DIRECTORY holds GraphAttribution's `benzene.jsonl` and `fluoride-carbonyl.jsonl`. For each task a GINE on elements and
bonds, or a GIN on elements alone, is trained on 1,500 molecules, half of them positive, whose labels RDKit gives; of a
conjunction, half of the negatives have one of the groups. The predictions of the positive class among `--keys` other
molecules are explained, and `found.patterns()` is asked what the class shares. A group counts as found if a pattern is
in the same molecules, by RDKit's own matching of its SMARTS.
"""

from __future__ import annotations

import argparse
import json
import time
import zlib
from functools import partial
from pathlib import Path
from typing import Any

import figures
import numpy as np
import torch
from rdkit import Chem, RDLogger
from torch import nn
from torch_geometric.data import Data
from torch_geometric.loader import DataLoader
from torch_geometric.nn import GINConv, GINEConv, global_add_pool

import cf2

ATOMS = ("C", "N", "O", "F", "S", "Cl", "Br", "I", "P")
BONDS = (1.0, 1.5, 2.0, 3.0)
CLASSES = ("without", "with")
FILES = ("benzene.jsonl", "fluoride-carbonyl.jsonl")
TASKS = {  # the groups of which a positive molecule has every one, and whether the model reads bonds
    "carbonyl": (("[#6]=[#8]",), True),
    "nitro": (("[#8]~[#7]=[#8]",), True),
    "fluoride and carbonyl": (("[#6]=[#8]", "[#6]-[#9]"), True),
    "carbonyl, elements alone": (("[#6]=[#8]",), False),
    "fluoride and carbonyl, elements alone": (("[#6]=[#8]", "[#6]-[#9]"), False),
}


def graph_of(smiles: str, groups: tuple[str, ...]) -> Data | None:
    molecule = Chem.MolFromSmiles(smiles)
    if any(atom.GetSymbol() not in ATOMS for atom in molecule.GetAtoms()):
        return None
    elements = [ATOMS.index(atom.GetSymbol()) for atom in molecule.GetAtoms()]
    bonds = list(molecule.GetBonds())
    ends = torch.tensor([(bond.GetBeginAtomIdx(), bond.GetEndAtomIdx()) for bond in bonds]).t()
    orders = torch.tensor([BONDS.index(bond.GetBondTypeAsDouble()) for bond in bonds])
    there = [molecule.HasSubstructMatch(Chem.MolFromSmarts(group)) for group in groups]
    return Data(
        x=torch.eye(len(ATOMS))[elements],
        edge_index=torch.cat([ends, ends.flip(0)], 1),
        edge_attr=torch.eye(len(BONDS))[torch.cat([orders, orders])],
        y=torch.tensor(int(all(there))),
        some=any(there),
        smiles=smiles,
    )


class Network(nn.Module):
    """Three layers and a sum; GINE where the model reads bonds."""

    def __init__(self, bonds: bool, hidden: int = 32) -> None:
        super().__init__()
        layer = partial(GINEConv, edge_dim=len(BONDS)) if bonds else GINConv
        widths = (len(ATOMS), hidden, hidden)
        self.convs = nn.ModuleList(
            layer(nn.Sequential(nn.Linear(width, hidden), nn.ReLU(), nn.Linear(hidden, hidden))) for width in widths
        )
        self.head = nn.Linear(hidden, 2)


class OnBonds(Network):
    def forward(self, x: Any, edge_index: Any, edge_attr: Any, batch: Any) -> Any:
        for conv in self.convs:
            x = conv(x, edge_index, edge_attr).relu()
        return self.head(global_add_pool(x, batch))


class OnElements(Network):
    def forward(self, x: Any, edge_index: Any, batch: Any) -> Any:
        for conv in self.convs:
            x = conv(x, edge_index).relu()
        return self.head(global_add_pool(x, batch))


def outputs(model: Network, batch: Any) -> Any:
    bonds = (batch.edge_attr,) if isinstance(model, OnBonds) else ()
    return model(batch.x, batch.edge_index, *bonds, batch.batch)


def read(directory: Path, groups: tuple[str, ...]) -> tuple[list[Data], list[Data]]:
    """1,500 molecules to train on, and up to 1,500 others, both with as many of either class as there are."""
    lines = [line for file in FILES for line in (directory / file).read_text(encoding="utf-8").splitlines()]
    texts = sorted({json.loads(line)["smiles"] for line in lines}, key=lambda text: zlib.crc32(text.encode()))
    graphs = [graph for text in texts if (graph := graph_of(text, groups)) is not None]
    positive = [graph for graph in graphs if int(graph.y)]
    some, none = ([graph for graph in graphs if not int(graph.y) and graph.some == own] for own in (True, False))
    negative = [graph for pair in zip(some, none) for graph in pair] if some else none
    mixed = [graph for pair in zip(positive, negative) for graph in pair]
    half = min(1500, len(mixed) // 2)
    return mixed[:half], mixed[half : half + 1500]


def trained(graphs: list[Data], bonds: bool, epochs: int = 40) -> Network:
    torch.manual_seed(0)
    model = (OnBonds if bonds else OnElements)(bonds)
    optimiser = torch.optim.Adam(model.parameters(), lr=0.003)
    for _ in range(epochs):
        for batch in DataLoader(graphs, batch_size=64, shuffle=True):
            optimiser.zero_grad()
            nn.functional.cross_entropy(outputs(model, batch), batch.y).backward()
            optimiser.step()
    return model.eval()


def predicted(model: Network, graphs: list[Data]) -> Any:
    (batch,) = DataLoader(graphs, batch_size=len(graphs))
    with torch.no_grad():
        return outputs(model, batch).argmax(1)


def right(smarts: str | None, group: str, graphs: list[Data]) -> bool:
    """Whether a pattern is in the same molecules as a group, but for one in a hundred."""
    if smarts is None:
        return False
    queries = [Chem.MolFromSmarts(text) for text in (smarts, group)]
    molecules = [Chem.MolFromSmiles(graph.smiles) for graph in graphs]
    there = np.array([[molecule.HasSubstructMatch(query) for query in queries] for molecule in molecules])
    return float((there[:, 0] == there[:, 1]).mean()) >= 0.99


def row(task: str, directory: Path, keys: int) -> str:
    groups, bonds = TASKS[task]
    training, others = read(directory, groups)
    model = trained(training, bonds)
    said = predicted(model, others)
    accuracy = float((said == torch.stack([graph.y for graph in others])).float().mean())
    positive = said[:keys].nonzero().flatten().tolist()
    found = cf2.explain(model, others, positive, units="edges", effort="quick", class_names=CLASSES)
    start = time.process_time()
    patterns = found.patterns(model, others)
    seconds = time.process_time() - start
    print(patterns, flush=True)
    known = [any(right(p.pattern.smarts, group, others) for p in patterns.of(1)) for group in groups]
    cells = [task, f"{100 * accuracy:.1f}", str(len(found.where(status="found")))]
    cells += ["; ".join(f"`{p.pattern.text}`" for p in patterns.of(1)) or "none", f"{sum(known)} of {len(groups)}"]
    first = next(iter(patterns.of(1)), None)
    jointly = patterns.about["jointly"].get(1) or {}
    if first is None:
        cells += ["–"] * 4
    else:
        shares = [jointly.get("precision") or first.precision, first.precision, first.necessity]
        cells += [f"{first.support} of {first.answers}"]
        cells += ["–" if share is None else f"{100 * share.value:.0f}" for share in shares]
    return f"| {' | '.join([*cells, f'{seconds:.1f}'])} |"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("directory", type=Path)
    parser.add_argument("--keys", type=int, default=300)
    parser.add_argument("--write", action="store_true", help="put the table into benchmarks/NOTES.md")
    asked = parser.parse_args()
    torch.set_num_threads(1)
    RDLogger.DisableLog("rdApp.*")
    head = "task | accuracy | answers | patterns of the class | groups found | support of the first"
    lines = [f"| {head} | precision of all | … of the first | necessity of the first | CPU s |", "|---" * 10 + "|"]
    for task in TASKS:
        lines.append(row(task, asked.directory, asked.keys))
        print(lines[-1], flush=True)
    if asked.write:
        figures.fill("groups", "\n".join(lines))


if __name__ == "__main__":
    main()
