"""Links, typed graphs and numbers: what is found, how large, at what cost, and how near to the known truth.

    python benchmarks/tasks.py [--most 200] [--only cora-links,crippen] [--out tasks.md]

Every row of a data set is about the same instances of the same shipped model. Methods of a fixed size choose as many
edges as the truth has (three on a path, three in the pattern), five where no truth is known.

- *passed*: the share with a set that passes both tests; PN, PS, F_NS in percent; *size*: units chosen, on average;
  *runs*: model evaluations per instance.
- Against true paths, over instances with a known truth that are predicted right: *precision*, the share of the chosen
  edges that lie on a true path; *recall*, the largest share of one true path that is chosen; *hit*, whether a path is
  chosen whole. An edge and its reverse are one.
- Against true contributions (Crippen): *rank*, the mean over molecules of Spearman's correlation between the scores of
  the atoms and the absolute contributions; *sign*, the share of molecules where the change of the prediction without
  the chosen atoms has the sign of what these contribute; *amount*, Spearman's correlation of the two over molecules.
  The row *one atom left out* is about the model and not about a method: what the prediction loses with the features of
  one atom, beside that atom's contribution; its rank is of signed numbers, and its sign is per atom,
  so it is no rival of the rows above it.
"""

from __future__ import annotations

import argparse
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import torch
from scipy import stats
from torch import Tensor
from torch_geometric.data import Batch, Data

import cf2
from cf2.errors import CF2Error
from cf2.paper.sources import from_dataset
from cf2.runs.model_and_data import ModelAndData

METHODS = ("cf2", "gnnexplainer", "gradient", "random")
HALF_A_UNIT = 0.5  # of logP: what counts as the same number
Row = dict[str, Any]
Explained = Sequence[Any]


@dataclass(frozen=True)
class Task:
    """A shipped model, what is asked of it, and what the answers are compared with."""

    dataset: str
    k: int  # of methods with a fixed size
    measure: Callable[[ModelAndData, Explained], Row]
    checkpoint: str | None = None
    options: dict[str, Any] = field(default_factory=dict)

    @property
    def name(self) -> str:
        return self.checkpoint or self.dataset

    def explain(self, source: ModelAndData, keys: list[Any], method: str) -> Explained:
        fixed = {} if method == "cf2" else {"k": self.k}
        options = {"method": method, "output": source.output, **self.options, **fixed}
        if source.level == "graph":
            return cf2.explain(source.model, [source.graphs[key] for key in keys], **options)
        if source.level == "pair":
            typed = {} if source.edge_type is None else {"edge_type": source.edge_type}
            return cf2.explain(source.model, source.graphs[0], pairs=keys, leave_out_pair=True, **typed, **options)
        return cf2.explain(source.model, source.graphs[0], nodes=keys, node_type=source.node_type, **options)


def rate(found: Explained) -> Row:
    """The figures that need no truth."""
    sizes = [e.size for e in found]
    return {
        "passed": 100 * cf2.metrics.passed(found),
        "PN": 100 * cf2.metrics.pn(found),
        "PS": 100 * cf2.metrics.ps(found),
        "F_NS": 100 * cf2.metrics.fns(found),
        "size": float(np.mean(sizes)),
        "runs": float(np.mean([e.evaluations for e in found])),
    }


def no_truth(source: ModelAndData, found: Explained) -> Row:
    return {}


def flat(edges: Any) -> np.ndarray:
    """A mask of all columns, or one for each edge type, as one array."""
    parts = [edges] if isinstance(edges, Tensor | np.ndarray) else [edges[kind] for kind in sorted(edges)]
    return np.concatenate([np.asarray(part) for part in parts]) > 0


def against_paths(source: ModelAndData, found: Explained) -> Row:
    """Precision, recall and hits against the acceptable explanations; both directions of an edge are marked alike."""
    graph = source.graphs[0]
    columns = graph.edge_index_dict if hasattr(graph, "edge_index_dict") else graph.edge_index
    rows = []
    for e in found:
        truths = [flat(one) for one in source.truths(e.key)]
        if truths and e.prediction == 1:
            chosen, union = flat(e.edge_mask(columns)), np.any(truths, axis=0)
            shares = [(chosen & truth).sum() / truth.sum() for truth in truths]
            rows.append(((chosen & union).sum() / max(chosen.sum(), 1), max(shares), float(max(shares) == 1)))
    if not rows:
        return {"known": 0}
    precision, recall, hit = 100 * np.mean(rows, axis=0)
    return {"known": len(rows), "precision": precision, "recall": recall, "hit": hit}


def against_contributions(source: ModelAndData, found: Explained) -> Row:
    """Rank and sign agreement with the share of each atom in logP."""
    keys = source.keys()
    ranks, changes, shares = [], [], []
    for e in found:
        true = source.graphs[keys[e.key]].contribution.numpy()
        atoms = e.units.ids[:, 0]
        if len(atoms) > 2 and np.ptp(e.scores) > 0 and np.ptp(np.abs(true[atoms])) > 0:
            ranks.append(stats.spearmanr(e.scores, np.abs(true[atoms])).statistic)
        if e.selected.any():
            changes.append(float(e.probabilities[0] - e.probabilities_without[0]))
            shares.append(float(true[atoms[e.selected]].sum()))
    sign = 100 * float(np.mean(np.sign(changes) == np.sign(shares))) if changes else float("nan")
    amount = stats.spearmanr(changes, shares).statistic if len(changes) > 2 else float("nan")
    return {"rank": float(np.mean(ranks)) if ranks else float("nan"), "sign": sign, "amount": float(amount)}


def one_atom_left_out(source: ModelAndData, keys: list[Any]) -> Row:
    """How far the model itself agrees with the true contributions, atom by atom."""
    ranks, signs = [], []
    for key in keys:
        graph = source.graphs[key]
        variants = [Data(x=graph.x, edge_index=graph.edge_index, edge_attr=graph.edge_attr)]
        for atom in range(graph.num_nodes):
            x = graph.x.clone()
            x[atom] = 0
            variants.append(Data(x=x, edge_index=graph.edge_index, edge_attr=graph.edge_attr))
        batch = Batch.from_data_list(variants)
        with torch.no_grad():
            whole, *less = source.model(batch.x, batch.edge_index, batch.edge_attr, batch.batch).view(-1).tolist()
        lost, true = whole - np.array(less), graph.contribution.numpy()
        if np.ptp(true) > 0:
            ranks.append(stats.spearmanr(lost, true).statistic)
        signs.extend(np.sign(lost) == np.sign(true))
    return {"method": "one atom left out", "n": len(keys), "rank": np.nanmean(ranks), "sign": 100 * np.mean(signs)}


TASKS = (
    Task("cora-links", 5, no_truth),
    Task("page-link", 3, against_paths),
    Task("page-link", 3, against_paths, checkpoint="page-link-hgt"),
    Task("typed-motifs", 3, against_paths),
    Task(
        "crippen",
        5,
        against_contributions,
        options={"output": "regression", "tolerance": HALF_A_UNIT, "units": "node_features"},
    ),
)


def measure(task: Task, most: int) -> list[Row]:
    """A row per method, on the same instances; a method that does not fit the task says so in its row."""
    source = from_dataset(task.dataset, checkpoint=task.checkpoint)
    keys, rows = source.keys()[:most], []
    for method in METHODS:
        begin = time.perf_counter()
        try:
            found = task.explain(source, keys, method)
        except CF2Error as error:
            rows.append({"data set": task.name, "method": method, "n": 0, "problem": str(error)})
            continue
        seconds = time.perf_counter() - begin
        row = {"data set": task.name, "method": method, "n": len(found), **rate(found), **task.measure(source, found)}
        rows.append({**row, "s each": seconds / len(found)})
    if task.measure is against_contributions:
        rows.append({"data set": task.name, **one_atom_left_out(source, keys)})
    return rows


def table(rows: list[Row]) -> str:
    """The rows of one data set as Markdown."""
    names = list(dict.fromkeys(name for row in rows for name in row))
    lines = [f"| {' | '.join(names)} |", "|" + "---|" * len(names)]
    for row in rows:
        cells = [row.get(name, "–") for name in names]
        lines.append(f"| {' | '.join(f'{cell:.2f}' if isinstance(cell, float) else str(cell) for cell in cells)} |")
    return "\n".join(lines)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--most", type=int, default=200, help="instances per data set")
    parser.add_argument("--only", help="names of tasks, with commas")
    parser.add_argument("--out", type=Path, help="also write the tables to this file")
    chosen = parser.parse_args()
    wanted = chosen.only.split(",") if chosen.only else [task.name for task in TASKS]
    tables = []
    for task in TASKS:
        if task.name in wanted:
            tables.append(table(measure(task, chosen.most)))
            print(tables[-1], end="\n\n", flush=True)
    if chosen.out:
        chosen.out.write_text("\n\n".join(tables) + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()
