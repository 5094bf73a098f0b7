"""What an explanation of the paper's six columns costs and gives, on all of their instances.

    python benchmarks/columns.py [tree-cycles …] [--effort …] [--most N] [--models DIR] [--json FILE] [--trials]

One row per column: how many are found, F_NS, the mean size, how many are proved smallest, model evaluations and CPU
milliseconds per explanation, all instances together. Sizes stand beside costs, so that speed is not bought with size.
With --trials, every column is also explained with soft masks blocked, so that slopes come from trials.
--keep writes the JSON of the documentation.
"""

from __future__ import annotations

import argparse
import json
import time
from itertools import product
from pathlib import Path
from typing import Any

import figures
import numpy as np
import torch

from cf2.errors import CF2Error
from cf2.models.predictor import Predictor
from cf2.options import Spec
from cf2.results.explanation import Explanation
from cf2.runs.session import Session
from cf2.samples.sources import from_dataset

COLUMNS = {
    "tree-cycles": ("tree-cycles", "edges"),
    "ba-shapes": ("ba-shapes", "edges"),
    "mutag0": ("mutag0", "edges"),
    "nci1": ("nci1", "edges"),
    "citeseer": ("citeseer", "edges"),
    "citeseer-features": ("citeseer", "features"),
}
HEAD = {"column": "", "effort": "", "instances": "d", "found": "d", "F_NS, %": ".1f", "mean size": ".2f"}
HEAD |= {"proved": "d", "evaluations": ",.0f", "CPU, ms": ".1f"}
SLOPES, COMPARED = ("gradients", "trials"), ("F_NS, %", "mean size", "evaluations")


def explained(
    column: str, settings: dict[str, Any], most: int | None, models: Path | None
) -> tuple[list[Explanation], float]:
    """The explanations of a column, and the CPU seconds that they took together."""
    name, units = COLUMNS[column]
    source = from_dataset(name, checkpoint=None if models is None else models / name)
    keys = source.keys()[:most]
    with Session(source.request(keys, Spec(units=(units,), settings=settings))) as session:
        measured = session.measure(keys)
    with Session(measured) as session:
        session.explain(keys[:2])  # whatever is done once is done
        started = time.process_time()
        found = session.explain(keys)
        return found, time.process_time() - started


def row(column: str, effort: str, found: list[Explanation], seconds: float) -> list[Any]:
    """One row of the table."""
    good = [e for e in found if e.status == "found"]
    pn, ps = (float(np.mean([getattr(e, name) for e in found])) for name in ("necessary", "sufficient"))
    fns = 200 * pn * ps / (pn + ps) if pn + ps else 0.0
    size = float(np.mean([e.size for e in good]))
    runs = float(np.mean([e.evaluations for e in found]))
    proved = sum(bool(e.optimal) or e.status == "impossible" for e in found)
    return [column, effort, len(found), len(good), fns, size, proved, runs, 1e3 * seconds / len(found)]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("columns", nargs="*", help=f"some of {', '.join(COLUMNS)}; all if none is named")
    parser.add_argument("--effort", nargs="+", default=["standard"])
    parser.add_argument("--most", type=int, help="instances a column")
    parser.add_argument("--models", type=Path, help="a directory of checkpoints by data set, in place of the shipped")
    parser.add_argument("--json", type=Path, help="keep size, status and evaluations of every instance")
    parser.add_argument("--trials", action="store_true", help="with soft masks blocked as well")
    parser.add_argument("--keep", action="store_true", help="write benchmarks/measured/columns.json, or trials.json")
    chosen = parser.parse_args()
    torch.set_num_threads(1)
    rows, kept, has_slopes = [], {}, Predictor.has_slopes
    ways = product(chosen.effort, chosen.columns or COLUMNS, SLOPES[: 1 + chosen.trials])
    for effort, column, slopes in ways:
        Predictor.has_slopes = has_slopes if slopes == "gradients" else lambda *_: False  # type: ignore[method-assign]
        try:
            found, seconds = explained(column, {"effort": effort}, chosen.most, chosen.models)
        except CF2Error as error:
            print(f"{column} is left out. {error}")
            continue
        rows.append(row(column, slopes if chosen.trials else effort, found, seconds))
        print(*(f"{name} {value:{form}}" for (name, form), value in zip(HEAD.items(), rows[-1])), flush=True)
        kept[f"{column} {rows[-1][1]}"] = [(e.key, e.status, e.size, bool(e.optimal), e.evaluations) for e in found]
    if chosen.json:
        chosen.json.write_text(json.dumps(kept), encoding="utf-8")
    if chosen.keep:
        shipped = list(dict.fromkeys(name for name, _ in COLUMNS.values()))
        asked = f"--trials --most {chosen.most}" if chosen.trials else f"--effort {' '.join(chosen.effort)}"
        command, head = f"python benchmarks/columns.py {asked} --keep", HEAD
        if chosen.trials:
            head = {"column": ""} | {f"{name}: {way}": HEAD[name] for name in COMPARED for way in SLOPES}
            pairs = [[dict(zip(HEAD, own)) for own in pair] for pair in zip(rows[::2], rows[1::2])]
            rows = [[pair[0]["column"], *(own[name] for name in COMPARED for own in pair)] for pair in pairs]
        figures.keep("trials" if chosen.trials else "columns", command, head, rows, shipped)


if __name__ == "__main__":
    main()
