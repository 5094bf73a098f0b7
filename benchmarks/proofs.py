"""How far proofs reach: `effort="exact"` on all instances of the paper's edge columns, one at a time.

    python benchmarks/proofs.py [tree-cycles …] [--effort exact] [--seconds 10] [--every N] [--json FILE] [--write]

One row per column: how many answers are proved smallest, or proved not to exist, for at most `--seconds` of CPU time
each; how far the lower bounds of the others are below the size that was found; and the CPU seconds. The limit is not
one of the search, which counts sets and so gives the same answer on every machine: what took longer does not count.
"""

from __future__ import annotations

import argparse
import json
import time
from collections import Counter
from pathlib import Path
from typing import Any

import torch

from cf2.errors import CF2Error
from cf2.options import Spec
from cf2.runs.session import Session
from cf2.samples.sources import from_dataset

PAGE = Path(__file__).parent / "NOTES.md"
BEGIN, END = "<!-- proofs: begin -->", "<!-- proofs: end -->"
COLUMNS = ("tree-cycles", "ba-shapes", "mutag0", "nci1", "citeseer")
GAPS = ("1", "2", "3 or more", "no set found")
HEAD = (
    "column", "instances", "mean size", "proved", "of these in time", *(f"bound below by {gap}" for gap in GAPS[:3]),
    GAPS[3], "CPU s, mean", "median", "most", "evaluations",
)  # fmt: skip


def explained(column: str, effort: str, every: int) -> list[dict[str, Any]]:
    """What is known of each instance, and the CPU seconds that it took."""
    source = from_dataset(column)
    keys = source.keys()[::every]
    with Session(source.request(keys, Spec(units=("edges",), settings={"effort": effort}))) as session:
        measured = session.measure(keys)
    found = []
    with Session(measured) as session:
        session.explain(keys[:1])  # whatever is done once is done
        for key in keys:
            started = time.process_time()
            (e,) = session.explain([key])
            seconds = time.process_time() - started
            proved = bool(e.optimal) or e.status == "impossible"
            known = {"status": e.status, "units": e.num_units, "size": e.size, "lower_bound": e.lower_bound}
            found.append({"key": str(key), "proved": proved, **known, "evaluations": e.evaluations, "seconds": seconds})
    return found


def gap(one: dict[str, Any]) -> str:
    """By how much the lower bound is below the size of what was found."""
    if one["status"] != "found":
        return GAPS[3]
    below = one["size"] - one["lower_bound"]
    return str(below) if below < 3 else GAPS[2]


def row(column: str, found: list[dict[str, Any]], limit: float) -> str:
    """One line of the table."""
    proved = [one for one in found if one["proved"]]
    in_time = sum(one["seconds"] <= limit for one in proved)
    gaps = Counter(gap(one) for one in found if not one["proved"])
    sizes = [one["size"] for one in found if one["status"] == "found"]
    seconds = sorted(one["seconds"] for one in found)
    runs = sum(one["evaluations"] for one in found) / len(found)
    cells = [
        column, len(found), f"{sum(sizes) / len(sizes):.2f}", len(proved), in_time, *(gaps[name] for name in GAPS),
        f"{sum(seconds) / len(seconds):.2f}", f"{seconds[len(seconds) // 2]:.2f}", f"{seconds[-1]:.1f}", f"{runs:,.0f}",
    ]  # fmt: skip
    return f"| {' | '.join(map(str, cells))} |"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("columns", nargs="*", help=f"some of {', '.join(COLUMNS)}; all if none is named")
    parser.add_argument("--effort", default="exact")
    parser.add_argument("--seconds", type=float, default=10.0, help="CPU seconds a proof may take to count")
    parser.add_argument("--every", type=int, default=1, help="take every so manyth instance")
    parser.add_argument("--json", type=Path, help="keep what is known of every instance")
    parser.add_argument("--write", action="store_true", help="put the table into the documentation")
    chosen = parser.parse_args()
    torch.set_num_threads(1)
    lines, kept = [f"| {' | '.join(HEAD)} |", "|---" + "|--:" * (len(HEAD) - 1) + "|"], {}
    print(*lines, sep="\n", flush=True)
    for column in chosen.columns or COLUMNS:
        try:
            kept[column] = explained(column, chosen.effort, chosen.every)
        except CF2Error as error:
            print(f"{column} is left out. {error}")
            continue
        lines.append(row(column, kept[column], chosen.seconds))
        print(lines[-1], flush=True)
        if chosen.json:
            chosen.json.write_text(json.dumps(kept), encoding="utf-8")
    if chosen.write:
        text = PAGE.read_text(encoding="utf-8")
        head, rest = text.split(BEGIN)
        PAGE.write_text(head + BEGIN + "\n" + "\n".join(lines) + "\n" + END + rest.split(END)[1], encoding="utf-8")


if __name__ == "__main__":
    main()
