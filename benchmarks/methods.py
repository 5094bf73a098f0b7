"""Every method on the same instances: what it finds and what it costs; fills the tables in benchmarks/NOTES.md.

    python benchmarks/methods.py [--most 40] [--learn 100] [--only NAME] [--write]

The instances are the paper's, of the shipped models, at most `--most` per table; methods that are trained first are
trained on the first `--learn` training instances of the explained classes. Evaluations and CPU seconds are per
explanation and leave training out; they are those of this process, on one thread. "random" is the mean over five seeds.
The last table asks what GNNX-Bench asks: of Mutagenicity's test graphs, whatever their class, how often do ten edges
alone keep the prediction (sufficiency, PS), and how often does the rest lose it (necessity, PN)?
"""

from __future__ import annotations

import argparse
import time
from collections.abc import Iterator
from dataclasses import fields
from pathlib import Path
from typing import Any

import numpy as np

from cf2.methods import registry
from cf2.methods.registry import draw_seed
from cf2.options import Key, Spec
from cf2.results import metrics
from cf2.results.explanations import Explanations
from cf2.runs.session import Session, train
from cf2.runs.source import ModelAndData
from cf2.samples import registry as datasets
from cf2.samples import training
from cf2.samples.datasets import paper_settings
from cf2.samples.sources import from_dataset

PAGE = Path(__file__).parent / "NOTES.md"
BEGIN, END = "<!-- methods: {name}: begin -->", "<!-- methods: {name}: end -->"
SEEDS = range(5)  # of the lower reference
EDGES = 10
# Sufficiency on Mutagenicity at ten edges as GNNX-Bench (ICLR 2024, https://arxiv.org/abs/2310.01794) reports it for a
# GCN of its own; CF² there is the paper's procedure.
PUBLISHED = {"subgraphx": 0.73, "rcexplainer": 0.69, "tage": 0.72, "cf2-relaxed": 0.69}

Cell = tuple[str, list[Explanations], float, float | None]


def cells(source: ModelAndData, keys: list[Key], learn: list[Key], units: str, k: int | None = None) -> Iterator[Cell]:
    """Of every method that scores such units: explanations (once per seed), CPU seconds of one, and of training."""
    for name in registry.names():
        about = registry.get(name)
        if about.units is not None and units not in about.units:
            continue
        if about.needs == "truth" and source.context(keys[:1]).get("truth") is None:
            continue
        if k is None:
            settings = paper_settings(name, source.name, features=units != "edges")
        else:
            settings = {"k": k} if "k" in {f.name for f in fields(about.settings)} else {}
        given: Any = source.true_edges(keys) if about.needs == "truth" else None
        fitting = None
        if about.needs == "training":
            started = time.process_time()
            given = train(source.request(learn, Spec(method=name, seed=0, settings=settings)), learn)
            fitting = time.process_time() - started
        found, started = [], time.process_time()
        for seed in SEEDS if name == "random" else [draw_seed(name, None)]:
            spec = Spec(method=name, units=(units,), seed=seed, settings=settings)
            with Session(source.request(keys, spec, given)) as session:
                found.append(Explanations(tuple(session.explain(keys))))
        yield name, found, (time.process_time() - started) / len(found) / len(keys), fitting


def row(cell: Cell, truth: Any, published: dict[str, float] | None) -> str:
    """One line of a table."""
    name, found, seconds, fitting = cell
    shares = [100 * float(np.mean([f(one) for one in found])) for f in (metrics.pn, metrics.ps, metrics.fns)]
    size = float(np.mean([metrics.size(one) for one in found]))
    cost = float(np.mean([e.evaluations for one in found for e in one]))
    shown = [name, *(f"{share:.1f}" for share in shares), f"{size:.2f}"]
    if truth is not None:
        shown.append(f"{100 * float(np.mean([metrics.truth(one, truth)['f1'] for one in found])):.1f}")
    if published is not None:
        shown.append(f"{100 * published[name]:.0f}" if name in published else "–")
    shown += [f"{cost:,.0f}", f"{1000 * seconds:,.1f}", "–" if fitting is None else f"{fitting:.1f}"]
    return f"| {' | '.join(shown)} |"


def table(
    source: ModelAndData,
    keys: list[Key],
    learn: list[Key],
    *,
    units: str = "edges",
    k: int | None = None,
    published: dict[str, float] | None = None,
) -> list[str]:
    """All methods on some instances."""
    truth = source.context(keys).get("truth") if units == "edges" else None
    columns = ["PN", "PS", "F_NS", "size", *(["F1"] if truth else []), *(["PS, published"] if published else [])]
    columns += ["evaluations", "CPU ms", "fit, CPU s"]
    lines = [
        f"{len(keys)} instances of {source.name}; {source.model_line}; trained on {len(learn)} others.",
        "",
        f"| method | {' | '.join(columns)} |",
        "|---" + "|--:" * len(columns) + "|",
    ]
    for cell in cells(source, keys, learn, units, k):
        lines.append(row(cell, truth, published))
        print(lines[-1], flush=True)
    return lines


def explained(name: str, most: int, learn: int, units: str = "edges") -> list[str]:
    """The paper's instances of a data set, at the paper's sizes."""
    source = from_dataset(name)
    assert source.keys_to_train_on is not None
    return table(source, source.keys()[:most], source.keys_to_train_on()[:learn], units=units)


def mutagenicity(most: int, learn: int) -> list[str]:
    """The first test graphs of Mutagenicity, of both classes, and ten edges."""
    about = training.shipped("mutag")[1]
    lessons, tests = datasets.split(datasets.load("mutag"), about.split["seed"])
    keys, others = (ids.tolist() for ids in (tests[:most], lessons[:learn]))
    return table(from_dataset("mutag"), keys, others, k=EDGES, published=PUBLISHED)


TABLES = {
    "tree-cycles": lambda most, learn: explained("tree-cycles", most, learn),
    "ba-shapes": lambda most, learn: explained("ba-shapes", most, learn),
    "citeseer-features": lambda most, learn: explained("citeseer", most, learn, "features"),
    "mutagenicity": mutagenicity,
}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--most", type=int, default=40, help="instances per table")
    parser.add_argument("--learn", type=int, default=100, help="instances that methods are trained on")
    parser.add_argument("--only", choices=TABLES, action="append", help="these tables and no others")
    parser.add_argument("--write", action="store_true", help="put the tables into the documentation")
    chosen = parser.parse_args()
    for name in chosen.only or TABLES:
        print(name)
        lines = TABLES[name](chosen.most, chosen.learn)
        if chosen.write:
            begin, end = (mark.format(name=name) for mark in (BEGIN, END))
            head, rest = PAGE.read_text(encoding="utf-8").split(begin)
            text = head + begin + "\n" + "\n".join(lines) + "\n" + end + rest.split(end)[1]
            PAGE.write_text(text, encoding="utf-8")


if __name__ == "__main__":
    main()
