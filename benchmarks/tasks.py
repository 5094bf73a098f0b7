"""Links, typed graphs and numbers: what is found, how large, at what cost, and how near to the known truth.

    python benchmarks/tasks.py [--most 200] [--only cora-links,crippen] [--keep DIR] [--fill benchmarks/NOTES.md]

Every row of a data set is about the same instances of the same shipped model. Methods of a fixed size choose as many
edges as the truth has (three on a path, three in the pattern), five where no truth is known. With `--keep` what is
explained is kept, and not explained again; `--fill` writes each table between its marks on a page.

- *cf2*: sufficient and necessary; *cf2, factual*: sufficient only; *cf2, n answers* (with
  `--answers n`): several answers per instance, whose cost and truth are of all of them together, the rest of the best.
- *passed*: the share with a set that passes both tests; PN, PS, F_NS in percent; *size*: units chosen, on average;
  *runs*: model evaluations per instance.
- Of pairs: *links*, *others*: the share that passed among those predicted to be a link and among the others; *default*:
  how many of those that did not pass get the same answer with all edges gone; *none*: how many are proved to have no
  set that passes, or have no edges.
- Against true paths, over instances with a known truth that are predicted right: *precision*, the share of the chosen
  edges that lie on a true path; *recall*, the largest share of one true path that is chosen; *hit*, whether a path is
  chosen whole. An edge and its reverse are one. Rows *at the size of cf2* choose, for each instance, as many edges as
  cf2 did, by the method's scores. The row *all true paths* is about the model: what it says of the truth itself.
- Against true contributions (Crippen): *rank*, the mean over molecules of Spearman's correlation between the scores of
  the atoms and the absolute contributions; *sign*, the share of molecules where the change of the prediction without
  the chosen atoms has the sign of what these contribute; *amount*, Spearman's correlation of the two over molecules.
  *cf2, atoms removed*: a unit is an atom with its bonds and not its features. The rows below it are about single atoms
  and no method: what the prediction, or Crippen's own formula, loses with one atom, beside that atom's contribution;
  *signed rank* is that of the numbers with their signs, and *sign* is per atom.
"""

from __future__ import annotations

import argparse
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import figures
import numpy as np
from contributions import against_contributions, single_atoms
from torch import Tensor

import cf2
from cf2.errors import CF2Error
from cf2.runs.source import ModelAndData
from cf2.samples.sources import from_dataset

ASKED: dict[str, dict[str, Any]] = {  # the rows of a data set
    "cf2": {},
    "cf2, factual": {"question": "factual"},
    "gnnexplainer": {"method": "gnnexplainer"},
    "gradient": {"method": "gradient"},
    "random": {"method": "random"},
}
ATOMS = {"cf2, atoms removed": {"units": "nodes"}}  # a row of molecules
PART = 25  # instances that are explained, and kept, together
HALF_A_UNIT = 0.5  # of logP: what counts as the same number
Row = dict[str, Any]
Explained = Any  # explanations, in the order of their keys


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

    def explain(self, source: ModelAndData, keys: list[Any], asked: dict[str, Any]) -> Explained:
        fixed = {"k": self.k} if "method" in asked else {}
        options = {"output": source.output, **self.options, **asked, **fixed}
        if source.level == "graph":
            return cf2.explain(source.model, source.graphs, keys, **options)
        if source.level == "pair":
            typed = {} if source.edge_type is None else {"edge_type": source.edge_type}
            return cf2.explain(source.model, source.graphs[0], pairs=keys, leave_out_pair=True, **typed, **options)
        return cf2.explain(source.model, source.graphs[0], nodes=keys, node_type=source.node_type, **options)


def rate(found: Explained) -> Row:
    """The figures that need no truth."""
    best = [e for e in found if not e.rank]
    return {
        "n": len(best),
        "passed": 100 * cf2.metrics.passed(best),
        "PN": 100 * cf2.metrics.pn(best),
        "PS": 100 * cf2.metrics.ps(best),
        "F_NS": 100 * cf2.metrics.fns(best),
        "size": float(np.mean([e.size for e in best])),
        "runs": sum(e.evaluations for e in found) / len(best),
        "s each": sum(e.seconds for e in found) / len(best),
    }


def by_answer(source: ModelAndData, found: Explained) -> Row:
    """What is found of pairs that are predicted to be a link, and of the others; and why some are not found."""
    best = [e for e in found if not e.rank]
    row: Row = {}
    for name, answer in (("links", 1), ("others", 0)):
        of_answer = [e for e in best if e.prediction == answer]
        row[name] = f"{100 * cf2.metrics.passed(of_answer):.1f} of {len(of_answer)}" if of_answer else "–"
    if best[0].method == "cf2" and best[0].question == "why":
        failed = [e for e in best if e.status != "found"]
        row["default"] = sum(e.default is True for e in failed)
        row["none"] = sum(e.status in ("impossible", "empty") for e in failed)
    return row


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
        if truths and e.prediction == 1 and not e.rank:
            answers = [flat(other.edge_mask(columns)) for other in found if other.key == e.key]
            chosen, union = np.any(answers, axis=0), np.any(truths, axis=0)
            shares = [(chosen & truth).sum() / truth.sum() for truth in truths]
            rows.append(((chosen & union).sum() / max(chosen.sum(), 1), max(shares), float(max(shares) == 1)))
    if not rows:
        return {"known": 0}
    precision, recall, hit = 100 * np.mean(rows, axis=0)
    return {"known": len(rows), "precision": precision, "recall": recall, "hit": hit}


def pairs_against_paths(source: ModelAndData, found: Explained) -> Row:
    return {**by_answer(source, found), **against_paths(source, found)}


def of_size(found: Explained, sizes: Sequence[int]) -> Explained:
    """The same instances with so many units each, those of the highest score."""
    made = []
    for e, size in zip(found, sizes, strict=True):
        chosen = np.zeros(len(e.units), dtype=bool)
        chosen[np.argsort(-e.scores, kind="stable")[:size]] = True
        made.append(replace(e, selected=chosen, status="unverified"))
    return made


def true_paths(task: Task, source: ModelAndData, keys: list[Any]) -> Row:
    """Does the model itself need the truth? All true paths of an instance as the set, over instances that have any."""
    known = [key for key in keys if source.truths(key)]
    typed = {"edge_type": source.edge_type} if source.level == "pair" else {"node_type": source.node_type}
    asked = {"pairs" if source.level == "pair" else "nodes": known, "method": "truth", "output": source.output}
    found = cf2.explain(source.model, source.graphs[0], **asked, **typed, trained=source.true_edges(known))
    return {"asked": "all true paths", **rate(found), **task.measure(source, found)}


def at_our_sizes(source: ModelAndData, explained: dict[str, Explained]) -> list[Row]:
    """Truth is measured again with cf2's sizes for the others."""
    ours, rows = explained["cf2"], []
    for name in ("gnnexplainer", "gradient", "random"):
        same = of_size(explained[name], [e.size for e in ours])
        rows.append({"asked": f"{name}, at the size of cf2", **against_paths(source, same)})
    return rows


TASKS = (
    Task("cora-links", 5, by_answer),
    Task("page-link", 3, pairs_against_paths),
    Task("page-link", 3, pairs_against_paths, checkpoint="page-link-hgt"),
    Task("typed-motifs", 3, against_paths),
    Task(
        "crippen",
        5,
        against_contributions,
        options={"output": "regression", "tolerance": HALF_A_UNIT, "units": "node_features"},
    ),
)


def measure(task: Task, most: int, keep: Path | None) -> list[Row]:
    """A row per question or method, on the same instances; what does not fit the task says so in its row."""
    source = from_dataset(task.dataset, checkpoint=task.checkpoint)
    keys = source.keys()[:most]
    explained: dict[str, Explained] = {}
    rows: list[Row] = []
    asked_of = {**ASKED, **ATOMS} if task.measure is against_contributions else ASKED
    for name, asked in asked_of.items():
        if task.measure is not pairs_against_paths and "alternatives" in asked:
            continue
        try:
            parts = [keys[start : start + PART] for start in range(0, len(keys), PART)]
            found = [e for part in parts for e in kept(keep, f"{task.name} {name}", part, source, task, asked)]
        except CF2Error as error:
            rows.append({"asked": name, "n": 0, "problem": str(error)})
            continue
        explained[name] = found
        rows.append({"asked": name, **rate(found), **task.measure(source, found)})
    if task.measure is against_contributions:
        rows += single_atoms(source, keys)
    elif task.measure is not by_answer:
        rows += at_our_sizes(source, explained)
        rows.append(true_paths(task, source, keys))
    return rows


def kept(
    keep: Path | None, name: str, keys: list[Any], source: ModelAndData, task: Task, asked: dict[str, Any]
) -> Explained:
    """What was explained before under this name and of these keys, else what is explained now."""
    if keep is None:
        return task.explain(source, keys, asked)
    ends = "-".join(str(key).strip("()").replace(", ", "_") for key in (keys[0], keys[-1]))
    path = keep / f"{name.replace(',', '').replace(' ', '-')}-{ends}.parquet"
    if not path.is_file():
        keep.mkdir(parents=True, exist_ok=True)
        task.explain(source, keys, asked).save(path)
    return cf2.load(path)


def table(rows: list[Row]) -> str:
    """The rows of one data set as Markdown."""
    names = list(dict.fromkeys(name for row in rows for name in row))
    head = ["" if name == "asked" else name for name in names]
    lines = [f"| {' | '.join(head)} |", "|" + "---|" * len(names)]
    lines += [f"| {' | '.join(_cell(name, row.get(name, '–')) for name in names)} |" for row in rows]
    return "\n".join(lines)


def _cell(name: str, value: Any) -> str:
    if not isinstance(value, float):
        return str(value)
    places = 2 if name in ("size", "s each", "rank", "amount", "signed rank") else 0 if name == "runs" else 1
    return f"{value:,.{places}f}"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--most", type=int, default=200, help="instances per data set")
    parser.add_argument("--only", help="names of tasks, with commas")
    parser.add_argument("--keep", type=Path, help="keep what is explained here, and do not explain it again")
    parser.add_argument("--fill", type=Path, help="write the tables between their marks on this page")
    parser.add_argument(
        "--answers", type=int, help="also a row with so many answers per instance, where paths are known"
    )
    chosen = parser.parse_args()
    if chosen.answers:
        ASKED[f"cf2, {chosen.answers} answers"] = {"alternatives": chosen.answers}
    wanted = chosen.only.split(",") if chosen.only else [task.name for task in TASKS]
    for task in TASKS:
        if task.name in wanted:
            made = table(measure(task, chosen.most, chosen.keep))
            print(f"{task.name}\n\n{made}", end="\n\n", flush=True)
            if chosen.fill:
                command = f"--only {task.name} --most {chosen.most} --fill {chosen.fill.as_posix()}"
                figures.fill(task.name, f"\n`python benchmarks/tasks.py {command}`\n\n{made}\n", chosen.fill)


if __name__ == "__main__":
    main()
