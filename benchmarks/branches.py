"""How many branches of a proof are refuted by bounds of the model's head, where parts are run and add up.

    python benchmarks/branches.py [mutag0 nci1] [--every 9] [--write]

All shapes below the size that `standard` finds are bounded, as a proof does it (`cf2.models.shapes`). A branch is a
shape that u edges are still added to. Beside the share that is refuted: how many runs of the model and how many bounds
that took per molecule, and how many shapes and sets there are.
"""

from __future__ import annotations

import argparse
import math
from collections import Counter
from pathlib import Path

import torch
from torch import Tensor

from cf2.models.shapes import Bounded, Census, Shapes
from cf2.options import Spec
from cf2.runs.session import Session
from cf2.samples.sources import from_dataset

PAGE = Path(__file__).parent / "NOTES.md"
BEGIN, END = "<!-- branches: begin -->", "<!-- branches: end -->"
MOST = 40_000  # molecules of which a size has more shapes are left out: the shapes are counted for comparison
OPEN = (1, 2, 4, 8)


class Counted(Bounded):
    """Bounds that count what they refute, by the edges that are still added."""

    tried: Counter[int]
    hit: Counter[int]

    def _refuted(self, z: Tensor, largest: Tensor, rest: Tensor) -> Tensor:
        found = super()._refuted(z, largest, rest)
        self.tried.update(rest.tolist())
        self.hit.update(rest[found].tolist())
        return found


def row(column: str, every: int) -> str:
    """One line of the table."""
    source = from_dataset(column)
    keys = source.keys()[::every]
    tried, hit, total, count = Counter[int](), Counter[int](), Counter[str](), 0
    with Session(source.request(keys, Spec(units=("edges",)))) as session:
        for e in session.explain(keys):
            (problem,) = session.problems([e.key])
            trials = problem.trials()
            shapes = Shapes.of(trials, 0)
            assert shapes is not None
            units = list(range(trials.width))
            census, bounded = Census(shapes, units), Counted.of(trials, 0, Census(shapes, units))
            if census.level(e.size - 1, MOST) is None:
                continue
            assert isinstance(bounded, Counted)
            bounded.tried, bounded.hit, count = tried, hit, count + 1
            for size in range(e.size):
                level = bounded.level(size, 10**7)
                assert level is not None
                total["left"] += len(level.sets)
                total["shapes"] += len(census.levels[size].sets)
                total["sets"] += math.comb(trials.width, size)
            total["parts"] += len(bounded.gain)
    shares = [f"{100 * hit[u] / tried[u]:.1f}" if tried[u] else "–" for u in OPEN]
    each = [total[name] / count for name in ("sets", "shapes", "parts")]
    costs = [*each, sum(tried.values()) / count, total["left"] / count]
    return f"| {column} | {count} of {len(keys)} | {' | '.join(shares + [f'{cost:,.0f}' for cost in costs])} |"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("columns", nargs="*", default=["mutag0", "nci1"])
    parser.add_argument("--every", type=int, default=9, help="take every so manyth instance")
    parser.add_argument("--write", action="store_true", help="put the table into the documentation")
    chosen = parser.parse_args()
    torch.set_num_threads(1)
    names = ["sets", "shapes", "parts run", "branches bounded", "shapes left"]
    head = ["column", "molecules", "refuted, %: u = 1", *map(str, OPEN[1:]), *names]
    lines = [f"| {' | '.join(head)} |", "|---" + "|--:" * (len(head) - 1) + "|"]
    print(*lines, sep="\n", flush=True)
    for column in chosen.columns:
        lines.append(row(column, chosen.every))
        print(lines[-1], flush=True)
    if chosen.write:
        text = PAGE.read_text(encoding="utf-8")
        before, rest = text.split(BEGIN)
        PAGE.write_text(before + BEGIN + "\n" + "\n".join(lines) + "\n" + END + rest.split(END)[1], encoding="utf-8")


if __name__ == "__main__":
    main()
