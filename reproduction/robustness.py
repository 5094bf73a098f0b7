"""GNNX-Bench's questions: what a few edges achieve, and how stable and how feasible the chosen edges are.

Sufficiency and necessity are shares of graphs at a size of at most k. Stability is the mean Jaccard overlap of the
chosen edges: with and without edges of noise that keep the prediction, under several seeds of the method, and between
models of different layers. An answer is feasible if its edges hang together, and if what is left without them is a
molecule.

GNNX-Bench's own definitions stand beside these: nodes without an edge are dropped before both tests, and an empty graph
gives no answer; the overlap is |A ∩ B| / k of the ten best edges, and its noise need not keep the prediction. A row
asks `cf2` for sets that pass these tests. Smallest sets are not unique, so another table column says whether the old
set still passes after one edge of noise.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from itertools import combinations
from typing import Any

import networkx as nx
import numpy as np
import torch
from torch import Tensor, nn
from torch_geometric.data import Batch, Data
from torch_geometric.utils import remove_isolated_nodes

from cf2.errors import CF2Error
from cf2.methods import registry
from cf2.methods.registry import draw_seed
from cf2.options import Key, Question, Spec
from cf2.results.explanation import Explanation
from cf2.runs.session import Session
from cf2.runs.source import ModelAndData
from cf2.samples import registry as datasets
from cf2.samples.models import ARCHITECTURES
from cf2.samples.sources import from_dataset
from cf2.storage import read_json, write_json
from cf2.units.molecules import molecule_check
from reproduction import published as paper
from reproduction.cells import Reproduction
from reproduction.rows import equal_scores

DATASETS = ("mutag",)
SIZES = tuple(range(1, 26))
TEN = 10  # edges at which the published figures are
NOISE = (1, 2, 3, 4, 5)
OWN_NOISE = (1, 5)  # by GNNX-Bench's definition
TRIES = 50  # random choices of edges of noise, of which one must keep the prediction
SEEDS = (0, 1, 2)  # of methods that draw or are trained
INSTANCES = 30
SHAPE: dict[str, Any] = {"hidden": 32, "dense": 2, "epochs": 30, "lr": 0.005, "batch_size": 128}  # of all models here

Row = dict[str, Any]
Edges = frozenset[tuple[int, int]]


def robustness_rows(
    cells: Reproduction, names: Sequence[str] | None = None, methods: Sequence[str] | None = None
) -> list[Row]:
    """One row per data set and method; each is kept in `out/robustness` and not computed again."""
    rows: list[Row] = []
    count = min(cells.instances or INSTANCES, INSTANCES)
    for name in (name for name in DATASETS if names is None or name in names):
        models: dict[str, ModelAndData] = {}
        for method in (method for method in paper.ROBUSTNESS_ROWS if methods is None or method in methods):
            path = cells.out / "robustness" / f"{name}-{method}-{count}.json"
            if not path.is_file():
                try:
                    models = models or {arch: _model(cells, name, arch) for arch in ARCHITECTURES}
                except CF2Error as error:
                    cells.missing[name] = str(error)
                    break
                cells.tell(f"robustness of {method} on {name}")
                path.parent.mkdir(parents=True, exist_ok=True)
                write_json(path, _row(models, name, method, agreed_keys(cells, name, models)[:count]))
            rows.append(read_json(path))
        rows += _only_published(name) if methods is None else []
    return rows


def _model(cells: Reproduction, name: str, arch: str) -> ModelAndData:
    path = cells.trained(name, arch, f"train {arch} on {name}", arch=arch, seed=0, **SHAPE)
    return from_dataset(name, checkpoint=path, root=cells.root)


def agreed_keys(cells: Reproduction, name: str, models: Mapping[str, ModelAndData]) -> list[Key]:
    """Test graphs of every class that all of the models get right: GNNX-Bench does not choose a class either."""
    dataset = datasets.load(name, root=cells.root)
    tests = datasets.split(dataset, 0)[1].tolist()  # all models are of seed 0
    true = torch.tensor([int(dataset.graphs[key].y) for key in tests])
    right = torch.ones(len(tests), dtype=torch.bool)
    for model in models.values():
        right &= _classes(model.model, [_plain(model, key) for key in tests]) == true
    return [key for key, yes in zip(tests, right.tolist()) if yes]


def _row(models: Mapping[str, ModelAndData], name: str, method: str, keys: list[Key]) -> Row:
    plain = models["gcn"]
    if method == paper.DROPPED:
        models = {arch: replace(model, model=WithoutIsolated(model.model)) for arch, model in models.items()}
    base, spec = models["gcn"], spec_of(method)
    trained = base.needed(spec, keys)
    explanations = _explained(base, spec, keys, trained)
    chosen = [chosen_edges(e) for e in explanations]
    row: Row = {"table": "robustness", "dataset": name, "method": method, "n": len(keys)}
    row |= curves(plain, spec, explanations, trained)
    row |= {"sufficiency": row["sufficient_at"][TEN - 1], "necessity": row["necessary_at"][TEN - 1]}
    row |= {"both": row["both_at"][TEN - 1], "equal": equal_scores(explanations)}
    row["size"] = float(np.mean([len(edges) for edges in chosen]))
    for count in NOISE:
        row[f"noise_{count}"] = _under_noise(base, spec, trained, keys, chosen, count)
    best = [chosen_edges(e, exact=True) for e in explanations]
    for count in OWN_NOISE:
        row[f"overlap_{count}"] = _under_noise(base, spec, trained, keys, best, count, own=True)
    row |= dropped(plain, keys, chosen) | still_passing(plain, keys, chosen)
    row["seeds_overlap"] = _over_seeds(base, spec, keys, chosen)
    of_others = [_explained(models[arch], spec, keys) for arch in models if arch != "gcn"]
    row["models_overlap"] = _pairwise([chosen, *([chosen_edges(e) for e in edges] for edges in of_others)])
    row["connected"] = float(np.mean([_connected(edges) for edges in chosen]))
    row["valid"] = _valid(base, keys, chosen)
    return row | {"published": paper.published(paper.ROBUSTNESS, name, method)}


def spec_of(method: str) -> Spec:
    """Ten edges where a method is told how many; elsewhere its own defaults. A row may ask for one test alone."""
    why: Question = "why"
    name, question = paper.ONE_TEST.get(method, ("cf2" if method == paper.DROPPED else method, why))
    sized = "k" in registry.get(name).paper
    settings = {"k": TEN} if sized else {}
    return Spec(method=name, question=question, seed=draw_seed(name, None), settings=settings)


def _explained(source: ModelAndData, spec: Spec, keys: Sequence[Key], trained: Any = None) -> list[Explanation]:
    if trained is None:
        trained = source.needed(spec, keys)
    with Session(source.request(keys, spec, trained)) as session:
        return session.explain(keys)


def top(e: Explanation, count: int, exact: bool = False) -> np.ndarray:
    """The answer of at most `count` units, bool [units]: a verified set that is small enough, else the best scores.

    With `exact`, the units of best score beyond such a set make up the `count`.
    """
    if registry.get(e.method).searches and e.size <= count and e.status == "found" and not exact:
        return np.asarray(e.selected)
    first = np.lexsort((-e.scores, ~e.selected if registry.get(e.method).searches else np.zeros(len(e.scores))))
    chosen = np.zeros(len(e.scores), dtype=bool)
    chosen[first[:count]] = True
    return chosen


def chosen_edges(e: Explanation, count: int = TEN, exact: bool = False) -> Edges:
    """The edges of the answer of at most `count` edges, the smaller node first."""
    return frozenset((min(a, b), max(a, b)) for a, b in e.units.of("edges")[top(e, count, exact)].tolist())


def dropped(base: ModelAndData, keys: Sequence[Key], chosen: Sequence[Edges]) -> Row:
    """Sufficiency and necessity where nodes without an edge are dropped before the model is run."""
    said = _classes(base.model, [_plain(base, key) for key in keys]).tolist()
    same: dict[bool, list[bool]] = {True: [], False: []}
    for key, edges, answer in zip(keys, chosen, said):
        graph = _plain(base, key)
        inside = _inside(graph, edges)
        for alone, verdicts in same.items():
            edge_index, _, seen = remove_isolated_nodes(graph.edge_index[:, inside == alone], num_nodes=len(graph.x))
            left = Data(x=graph.x[seen], edge_index=edge_index)
            verdicts.append(bool(seen.any()) and int(_classes(base.model, [left])) == answer)
    return {"dropped_sufficiency": float(np.mean(same[True])), "dropped_necessity": 1 - float(np.mean(same[False]))}


def still_passing(base: ModelAndData, keys: Sequence[Key], chosen: Sequence[Edges]) -> Row:
    """Of edges that are sufficient, and of those that are necessary, the share that are so after one edge of noise."""
    draw = torch.Generator().manual_seed(1)
    verdicts: dict[str, list[bool]] = {"still_sufficient": [], "still_necessary": []}
    for key, edges in zip(keys, chosen):
        passes = []
        noisy = with_noise(lambda graphs: torch.zeros(len(graphs)), _plain(base, key), 1, draw)
        for graph in (_plain(base, key), noisy):
            if graph is not None:
                inside = _inside(graph, edges)
                parts = [Data(x=graph.x, edge_index=graph.edge_index[:, part]) for part in (inside, ~inside)]
                whole, alone, rest = _classes(base.model, [graph, *parts]).tolist()
                passes.append((alone == whole, rest != whole))
        for name, (before, *after) in zip(verdicts, zip(*passes)):
            verdicts[name] += after if before else []
    return {name: float(np.mean(share)) for name, share in verdicts.items() if share}


class WithoutIsolated(nn.Module):
    """A model that is run without the nodes that have no edge; where none is left, a class more says so."""

    def __init__(self, model: nn.Module) -> None:
        super().__init__()
        self.model = model

    def forward(self, x: Tensor, edge_index: Tensor, batch: Tensor | None = None) -> Tensor:
        owner = x.new_zeros(len(x), dtype=torch.long) if batch is None else batch
        seen = torch.zeros(len(x), dtype=torch.bool)
        seen[edge_index.flatten()] = True
        left, compact = torch.unique(owner[seen], return_inverse=True)
        graphs = int(owner.max()) + 1
        none = torch.ones(graphs, 1).index_fill(0, left, -1.0) * NO_ANSWER
        if not len(left):
            return torch.cat([x.new_zeros(graphs, 2), none], 1)
        rows = self.model(x[seen], (seen.cumsum(0) - 1)[edge_index], batch=compact)
        return torch.cat([rows.new_zeros(graphs, rows.size(1)).index_copy(0, left, rows), none], 1)


NO_ANSWER = 100.0  # the logit of having no answer, and less it of having one


def curves(
    source: ModelAndData, spec: Spec, explanations: Sequence[Explanation], trained: Any
) -> dict[str, list[float]]:
    """The shares of graphs whose answer of at most k edges is sufficient, necessary and both, for every k."""
    by_key = {e.key: e for e in explanations}
    verdicts: list[list[Tensor]] = [[] for _ in SIZES]
    with Session(source.request(list(by_key), spec, trained)) as session:
        for problem in session.problems(list(by_key)):
            here = [by_key[instance.key] for instance in problem.instances]
            for position, size in enumerate(SIZES):
                chosen = torch.from_numpy(np.concatenate([top(e, size) for e in here])).to(problem.outputs.device)
                said = problem.judge(chosen)
                both = said.sufficient & said.necessary
                verdicts[position].append(torch.stack([said.sufficient, said.necessary, both]).cpu())
    shares = [torch.cat(parts, 1).double().mean(1).tolist() for parts in verdicts]
    return {f"{name}_at": [share[i] for share in shares] for i, name in enumerate(("sufficient", "necessary", "both"))}


def _under_noise(
    base: ModelAndData,
    spec: Spec,
    trained: Any,
    keys: Sequence[Key],
    chosen: Sequence[Edges],
    count: int,
    own: bool = False,
) -> float | None:
    """The mean overlap of the edges chosen before and after; `own`: by GNNX-Bench's definition."""
    draw = torch.Generator().manual_seed(count)

    def says(graphs: Sequence[Data]) -> Tensor:
        return torch.zeros(len(graphs)) if own else _classes(base.model, graphs)

    disturbed = [with_noise(says, _plain(base, key), count, draw) for key in keys]
    kept = [(graph, before) for graph, before in zip(disturbed, chosen) if graph is not None]
    if not kept:
        return None
    noisy = replace(base, graphs=[graph for graph, _ in kept], _targets={}, truth=lambda key: None)
    after = [chosen_edges(e, exact=own) for e in _explained(noisy, spec, list(range(len(kept))), trained)]
    overlap = shared if own else jaccard
    return float(np.mean([overlap(before, edges) for (_, before), edges in zip(kept, after)]))


def absent_pairs(graph: Data) -> Tensor:
    """All pairs of two nodes that no edge joins, int64 [2, pairs], the smaller node first."""
    nodes = int(graph.num_nodes or 0)
    joined = torch.eye(nodes, dtype=torch.bool)
    joined[graph.edge_index[0], graph.edge_index[1]] = True
    return (~(joined | joined.t())).triu(1).nonzero().t()


def with_noise(
    predict: Callable[[Sequence[Data]], Tensor], graph: Data, count: int, draw: torch.Generator
) -> Data | None:
    """The graph with `count` more undirected edges and the same prediction; None if the tries run out.

    Parameters
    ----------
    predict : callable
        Gives the class of each of some graphs, int64 [graphs].
    graph : Data
        A graph with `x` and `edge_index`; what else it holds is left out of the new one.
    count : int
        How many edges are added, each between two nodes that none joins.
    draw : torch.Generator
        Where the pairs are drawn from.

    Returns
    -------
    Data or None
        `x`, and `edge_index` with both directions of the new edges behind the columns of the old ones.
    """
    absent = absent_pairs(graph)
    if absent.size(1) < count:
        return None
    disturbed = []
    for _ in range(TRIES):
        new = absent[:, torch.randperm(absent.size(1), generator=draw)[:count]]
        disturbed.append(Data(x=graph.x, edge_index=torch.cat([graph.edge_index, new, new.flip(0)], 1)))
    same = (predict(disturbed) == predict([graph])).nonzero().view(-1)
    return disturbed[int(same[0])] if len(same) else None


def _over_seeds(base: ModelAndData, spec: Spec, keys: Sequence[Key], chosen: list[Edges]) -> float:
    """1 for a method that neither draws nor is trained: it gives the same again."""
    if spec.seed is None:
        return 1.0
    others = [_explained(base, replace(spec, seed=seed), keys) for seed in SEEDS if seed != spec.seed]
    return _pairwise([chosen, *([chosen_edges(e) for e in explanations] for explanations in others)])


def _pairwise(answers: Sequence[Sequence[Edges]]) -> float:
    return float(np.mean([jaccard(a, b) for first, second in combinations(answers, 2) for a, b in zip(first, second)]))


def jaccard(first: Edges, second: Edges) -> float:
    """The overlap of two sets of edges; two empty ones are equal."""
    return len(first & second) / len(first | second) if first | second else 1.0


def shared(first: Edges, second: Edges) -> float:
    """GNNX-Bench's overlap of two sets of k edges, |A ∩ B| / k; k is smaller where a graph has fewer edges."""
    return len(first & second) / max(len(first), 1)


def _plain(source: ModelAndData, key: Key) -> Data:
    graph = source.graphs[key]  # type: ignore[index]
    return Data(x=graph.x, edge_index=graph.edge_index)


def _inside(graph: Data, edges: Edges) -> Tensor:
    """Which columns of a graph are among the edges, bool [columns]."""
    return torch.tensor([(min(a, b), max(a, b)) in edges for a, b in graph.edge_index.t().tolist()], dtype=torch.bool)


def _classes(model: nn.Module, graphs: Sequence[Data]) -> Tensor:
    batch = Batch.from_data_list(list(graphs))
    with torch.no_grad():
        out: Tensor = model(batch.x, batch.edge_index, batch=batch.batch).argmax(1)
    return out


def _connected(edges: Edges) -> bool:
    """Whether the edges are one piece; none are."""
    return not edges or bool(nx.is_connected(nx.Graph(list(edges))))


def _valid(base: ModelAndData, keys: Sequence[Key], chosen: Sequence[Edges]) -> float | None:
    """The share of graphs that are a molecule without the chosen edges; None where the data does not say the bonds."""
    if base.atoms is None or "bond" not in base.graphs[0]:
        return None
    check = molecule_check(base.atoms)
    verdicts = []
    for key, edges in zip(keys, chosen):
        graph = base.graphs[key]  # type: ignore[index]
        keep = ~_inside(graph, edges)
        verdicts.append(check(Data(x=graph.x, edge_index=graph.edge_index[:, keep], bond=graph.bond[keep])))
    return float(np.mean(verdicts))


def _only_published(name: str) -> list[Row]:
    """The rows of published methods that are too slow to be run here by default."""
    shown = {paper.PUBLISHED_AS.get(method, method) for method in paper.ROBUSTNESS_ROWS}
    return [
        {"table": "robustness", "dataset": name, "method": method, "published": dict(values)}
        for (dataset, method), values in paper.ROBUSTNESS.items()
        if dataset == name and method not in shown
    ]
