"""Data sets whose raw files people make: GraphAttribution's molecules, Crippen's logP, and PaGE-Link's users and items.

They are here and not in the wheel because their files cannot be downloaded in the form that is read
(docs/datasets.md has it).
"""

from __future__ import annotations

import json
import random
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor
from torch_geometric.data import Data, HeteroData
from torch_geometric.data.collate import collate
from torch_geometric.data.separate import separate

from cf2.errors import CF2Error, extra, os_reason, require
from cf2.graphs.graph import Graph
from cf2.options import EdgeType, Key
from cf2.samples.datasets import EXPLAINED, Dataset, Edges, shuffled
from cf2.samples.networks import pair_dataset
from cf2.samples.storage import Root, cache_directory, data_root, require_raw_file
from cf2.storage import fingerprint, read_json, write_with

GET_AGAIN = "Delete it and get it again."
FORMAT = 4  # part of the name of each file of kept graphs; raise it when their contents change meaning

# -- GraphAttribution and logP --------------------------------------------------------------------------------
# Atoms are numbered as RDKit's `MolFromSmiles` does; hydrogens are implicit. The bonds decide the class of a molecule
# as much as its atoms, so `x` says the element (for logP also its charge) and `edge_attr` the kind of the bond.

ATOMS = ("C", "N", "O", "F", "S", "Cl", "Br", "I", "P")
CHARGES = (0, 1, -1)  # the logP of an atom depends on its charge: `crippen` has the columns of ATOMS for each
BONDS = {"SINGLE": 1.0, "DOUBLE": 2.0, "TRIPLE": 3.0, "AROMATIC": 1.5}  # the columns of `edge_attr`
THIRD = 3  # of the molecules are enough to learn logP from, and its atoms take RDKit a while
MAX_ATOMS = 1000  # of a molecule
ATTRIBUTION_SOURCE = (
    'a JSON object per line with "id", "smiles", "y", "truth" and "test", made of google-research/graph-attribution '
    "(docs/datasets.md has the form)."
)
Row = dict[str, Any]


def with_truth(name: str, classes: tuple[str, str], root: Root = None) -> Dataset:
    """Molecules with the sets of atoms that explain each: every benzene ring, or every choice of both groups."""
    path = raw_file(root, "GraphAttribution", f"{name}.jsonl", ATTRIBUTION_SOURCE)
    rows = _rows(path)
    graphs = kept(name, path, lambda: _classified(path, rows))

    def explanations(key: Key) -> list[Edges]:
        assert isinstance(key, int)
        return [truth_edges(graphs[key].edge_index, atoms) for atoms in rows[key]["truth"]]

    common = _with_bonds(graphs, rows) | {"explanations": explanations}
    return Dataset(name, "graph", graphs, 2, len(ATOMS), classes, (1,), atoms=ATOMS, **common)


def crippen(root: Root = None) -> Dataset:
    """Every third molecule of `benzene` with Crippen's logP, and what each atom contributes to it.

    `contribution` [atoms] is the atom's own share and that of the hydrogens on it; their sum is `y` [1].
    """
    path = raw_file(root, "GraphAttribution", "benzene.jsonl", ATTRIBUTION_SOURCE)
    rows = _rows(path)[::THIRD]
    name = f"crippen-{THIRD}"
    graphs = kept(name, path, lambda: _logp(path, rows))
    common = _with_bonds(graphs, rows) | {"output": "regression", "first": EXPLAINED}
    atoms = ATOMS * len(CHARGES)
    return Dataset("crippen", "graph", graphs, 1, len(atoms), (), (), atoms=atoms, **common)


def truth_edges(edge_index: Tensor, atoms: Sequence[int]) -> Tensor:
    """The bonds that a set of atoms stands for, bool [edges].

    Those between two of the atoms, and all those of an atom that has no bond to another one of the set, such as a
    fluoride.
    """
    inside = torch.zeros(int(edge_index.max()) + 1 if edge_index.numel() else 1, dtype=torch.bool)
    inside[[atom for atom in atoms if atom < len(inside)]] = True
    tail, head = edge_index
    between = inside[tail] & inside[head]
    alone = inside.clone()
    alone[tail[between]] = False
    return between | alone[tail] | alone[head]


def _with_bonds(graphs: list[Data], rows: list[Row]) -> dict[str, Any]:
    """Add to the graphs what is not kept in a file, bonds as columns and SMILES; the fields that these sets share."""
    bonds = torch.tensor(list(BONDS.values()))
    for graph, row in zip(graphs, rows):
        graph.edge_attr = (graph.bond[:, None] == bonds).float()
        graph.smiles = row["smiles"]
    tests = torch.tensor([number for number, row in enumerate(rows) if row["test"]], dtype=torch.long)
    return {"num_edge_features": len(BONDS), "test_ids": tests}


def _rows(path: Path) -> list[Row]:
    """The lines of a file, each with what it must have."""
    require_raw_file(path)
    try:
        lines = path.read_bytes().splitlines()
    except OSError as error:
        raise CF2Error(f"Expected to read {path}", got=os_reason(error)) from error
    rows = []
    for number, line in enumerate(lines, 1):
        try:
            row = json.loads(line)
        except (ValueError, RecursionError) as error:
            raise damaged(path, f"JSON on line {number}", str(error).rstrip(".")) from error
        good = isinstance(row, dict) and isinstance(row.get("smiles"), str) and isinstance(row.get("test"), bool)
        good = good and row.get("y") in (0, 1) and _are_sets(row.get("truth")) and bool(row["truth"]) == bool(row["y"])
        if not good:
            expected = '"smiles", "y" (0 or 1), "truth" (sets of atoms exactly where y is 1) and "test" on each line'
            raise damaged(path, expected, f"something else on line {number}")
        rows.append(row)
    if not any(row["test"] for row in rows) or all(row["test"] for row in rows):
        raise damaged(path, "molecules for training and for testing", f"{len(rows)} lines of one kind")
    return rows


def _are_sets(truth: Any) -> bool:
    if not isinstance(truth, list):
        return False
    return all(isinstance(s, list) and s and all(type(a) is int and 0 <= a < MAX_ATOMS for a in s) for s in truth)


def _classified(path: Path, rows: list[Row]) -> list[Data]:
    graphs = []
    for number, row in enumerate(rows, 1):
        graph = _graph(path, _molecule(path, row["smiles"], number), number)
        last = max((atom for atoms in row["truth"] for atom in atoms), default=0)
        if last >= graph.num_nodes:
            raise damaged(path, f"atoms 0 to {graph.num_nodes - 1} on line {number}", f"atom {last}")
        graph.y = torch.tensor([row["y"]])
        graphs.append(graph)
    return graphs


def _logp(path: Path, rows: list[Row]) -> list[Data]:
    """The molecules with their logP and each atom's share of it."""
    graphs = []
    for number, row in enumerate(rows):
        line = THIRD * number + 1
        molecule = _molecule(path, row["smiles"], line)
        graph = _graph(path, molecule, line)
        charges = [atom.GetFormalCharge() for atom in molecule.GetAtoms()]
        if not set(charges) <= set(CHARGES):
            raise damaged(path, f"charges among {CHARGES} on line {line}", f"{sorted(set(charges))}")
        charged = torch.eye(len(CHARGES))[[CHARGES.index(charge) for charge in charges]]
        graph.x = (charged[:, :, None] * graph.x[:, None, :]).flatten(1)
        contribution = _contribution(molecule)
        graph.contribution, graph.y = contribution.float(), contribution.sum().float().view(1)
        graphs.append(graph)
    return graphs


def _contribution(molecule: Any) -> Tensor:
    """Each atom's share of the logP, and that of the hydrogens on it, float64 [atoms]."""
    from rdkit import Chem
    from rdkit.Chem import rdMolDescriptors

    whole, atoms = Chem.AddHs(molecule), molecule.GetNumAtoms()  # hydrogens come after all other atoms
    shares = [share for share, _ in rdMolDescriptors._CalcCrippenContribs(whole)]
    contribution = torch.tensor(shares[:atoms], dtype=torch.float64)
    for hydrogen, share in enumerate(shares[atoms:], atoms):
        contribution[whole.GetAtomWithIdx(hydrogen).GetNeighbors()[0].GetIdx()] += share
    return contribution


def _molecule(path: Path, smiles: str, line: int) -> Any:
    """RDKit's molecule of a SMILES, with as many atoms as there may be."""
    try:
        from rdkit import Chem
        from rdkit.rdBase import BlockLogs
    except ImportError as error:
        raise CF2Error(
            "Expected rdkit, which reads the SMILES of these molecules", got="none installed", do=extra("molecules")
        ) from error
    with BlockLogs():  # what it cannot read is one error of ours
        molecule = Chem.MolFromSmiles(smiles)
    if molecule is None or not 0 < molecule.GetNumAtoms() <= MAX_ATOMS:
        raise damaged(path, f"a molecule on line {line}", repr(smiles[:60]))
    return molecule


def _graph(path: Path, molecule: Any, line: int) -> Data:
    atoms = [atom.GetSymbol() for atom in molecule.GetAtoms()]
    strange = sorted(set(atoms) - set(ATOMS))
    if strange:
        raise damaged(path, f"atoms among {', '.join(ATOMS)} on line {line}", ", ".join(strange))
    bonds = [(b.GetBeginAtomIdx(), b.GetEndAtomIdx(), str(b.GetBondType())) for b in molecule.GetBonds()]
    if not {kind for _, _, kind in bonds} <= set(BONDS):
        raise damaged(path, f"single, double, triple and aromatic bonds on line {line}", "others")
    both = sorted((a, b, BONDS[kind]) for tail, head, kind in bonds for a, b in ((tail, head), (head, tail)))
    ends = torch.tensor([(a, b) for a, b, _ in both], dtype=torch.long).view(-1, 2)
    x = torch.eye(len(ATOMS))[[ATOMS.index(atom) for atom in atoms]]
    return Data(x=x, edge_index=ends.t().contiguous(), bond=torch.tensor([order for _, _, order in both]))


# -- page link -------------------------------------------------------------------------------------------


LIKES: EdgeType = ("user", "likes", "item")
WIDTH = 64  # of the signs by which nodes are told apart
MAX_NODES = 10**7  # whose signs fit into the memory
TEST_PAIRS = 0.2
SOURCE = (
    "JSON with `nodes`, `edges` and `truth`, made of the synthetic graph of "
    "amazon-science/page-link-path-based-gnn-explanation (docs/datasets.md has the form)."
)
Step = tuple[EdgeType, int, int]


def page_link(root: Root = None, seed: int = 0) -> Dataset:
    """Does the user like the item? 714 pairs with the paths that caused each, and as many pairs without a link.

    Nodes have no features of their own. Each gets signs (±1/8, 64 of them) drawn from the seed: they tell nodes apart
    without saying anything about them, and go with a node into every part of the graph.
    """
    path = raw_file(root, "PaGELink", "synthetic.json", SOURCE)
    counts, edges, paths = _parts(path)
    graph, rng = HeteroData(), random.Random(seed)
    for kind in sorted(counts):
        signs = [[1.0 if rng.random() < 0.5 else -1.0 for _ in range(WIDTH)] for _ in range(counts[kind])]
        graph[kind].x = torch.tensor(signs) / WIDTH**0.5
    for edge_type in sorted(edges):
        if edge_type != LIKES:
            graph[edge_type].edge_index = edges[edge_type]
    links = edges[LIKES].t()
    order = torch.tensor(shuffled(range(len(links)), seed))
    liked = {(int(a), int(b)) for a, b in links.tolist()}
    free = [(a, b) for a in range(counts["user"]) for b in range(counts["item"]) if (a, b) not in liked]
    if len(free) < len(links):
        raise damaged(path, "as many pairs without a link as with one", f"{len(free)} and {len(links)}")
    others = torch.tensor([free[i] for i in shuffled(range(len(free)), seed + 1)[: len(links)]])
    tests = int(TEST_PAIRS * len(links))
    truth = {"edge_type": LIKES, "explanations": partial(_masks, Graph(graph), paths)}
    return pair_dataset("page-link", graph, ("does not like", "likes"), links[order], others, tests, seed, **truth)


def _masks(graph: Graph, paths: Mapping[Key, list[list[Step]]], key: Key) -> list[Edges]:
    """The paths of a pair as masks of edges; an edge and its mirror image in another type are one."""
    types, ties = graph.types, graph.ties
    assert types is not None
    assert ties is not None
    counts = graph.extras["edge_type"][1].bincount(minlength=len(types.edges)).tolist()
    masks: list[Edges] = []
    for path in paths.get(key, []):
        codes = np.concatenate([types.codes({kind: [(a, b)]}) for kind, a, b in path])
        masks.append(dict(zip(types.edges, torch.split(torch.isin(ties, torch.from_numpy(codes)), counts))))
    return masks


def _parts(path: Path) -> tuple[dict[str, int], dict[EdgeType, Tensor], dict[Key, list[list[Step]]]]:
    """The counts of nodes, edges [2, n] by type, and paths by pair, of a file whose parts fit together."""
    content = read_json(path, "JSON", do=GET_AGAIN)
    try:
        counts = {str(kind): int(count) for kind, count in content["nodes"].items()}
        nodes = sum(counts.values())
        require(nodes <= MAX_NODES, f"Expected a graph of at most {MAX_NODES:,} nodes", got=f"{nodes:,} nodes")
        edges = {_edge_type(name): torch.tensor(ends, dtype=torch.long) for name, ends in content["edges"].items()}
        there = {(kind, int(a), int(b)) for kind, ends in edges.items() for a, b in ends.t()}
        for (first, relation, last), ends in edges.items():
            high = torch.tensor([[counts[first]], [counts[last]]])
            if not bool(((ends >= 0) & (ends < high)).all()):
                raise ValueError(f"edges {first}|{relation}|{last} between nodes that are not there")
        if len(there) != sum(ends.shape[1] for ends in edges.values()) or not edges[LIKES].numel():
            raise ValueError("an edge that comes twice, or nothing that a user likes")
        truth: dict[Key, list[list[Step]]] = {}
        for entry in content["truth"]:
            (_, user), (_, item) = entry["pair"]
            paths = [[(_edge_type("|".join(kind)), int(a), int(b)) for kind, a, b in steps] for steps in entry["paths"]]
            if not there.issuperset(step for steps in paths for step in steps):
                raise ValueError(f"a path of the pair {user}, {item} with a step that is no edge")
            truth[int(user), int(item)] = paths
    except (LookupError, TypeError, ValueError, AttributeError, RuntimeError, OverflowError) as error:
        said = f"{type(error).__name__}: {error}"
        raise damaged(path, "`nodes`, `edges` and `truth` that fit together", said) from error
    return counts, edges, truth


def _edge_type(name: str) -> EdgeType:
    first, relation, last = name.split("|")
    return first, relation, last


# -- files that people make -----------------------------------------------------------------------------------


def raw_file(root: Root, family: str, file: str, source: str) -> Path:
    """One raw file that cannot be downloaded in this form; `source` says in the error where the data comes from."""
    paths = [data_root(root) / family / file, cache_directory() / family / file]
    for path in paths:
        if path.exists():
            return path
    raise CF2Error(
        f"Expected the file {paths[0]}, and it is missing",
        do=f"Put it there, or set CF2_DATA (--data-root) to the directory that holds {family}/{file}: {source}",
    )


def damaged(path: Path, expected: str, got: str) -> CF2Error:
    """The error for a raw file that holds something else than it must."""
    return CF2Error(f"Expected {path} to hold {expected}", got=got, do=GET_AGAIN)


def kept(name: str, source: Path, make: Callable[[], list[Data]]) -> list[Data]:
    """The graphs that `make` gives in some seconds, kept in the cache under the digest of the file they are made of."""
    path = cache_directory() / "processed" / f"{name}-{FORMAT}-{fingerprint(source, digits=16)}.pt"
    try:
        tensors, slices = torch.load(path, weights_only=True)
    except Exception:  # it is not there, or not what was written: made again
        joined, slices, _ = collate(Data, make(), increment=False, add_batch=False)
        tensors = joined.to_dict()
        with suppress(CF2Error):  # no place to keep them: the next load is slow, but this one is right
            write_with(path, lambda partial: torch.save((tensors, slices), partial))
    joined = Data.from_dict(tensors)
    return [separate(Data, joined, number, slices, decrement=False) for number in range(len(slices["x"]) - 1)]
