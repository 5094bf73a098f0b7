"""Settle the recipes of the paper's base models by held-out accuracy alone; fills benchmarks/NOTES.md.

    python benchmarks/recipes.py FILE            # train what FILE, a line of JSON per model, does not have yet
    python benchmarks/recipes.py FILE --write    # and put the tables into the page

Of the training part of a seed's split the last fifth is held out; a model is trained on the rest, its last epoch is
kept, and the figure is its accuracy on that fifth. Neither test instances nor explanations are looked at.
What the paper and its code fix stays fixed: three layers, the last of which is read, and their sums. The grid and the
rule are those of `benchmarks/NOTES.md`, which was written first.
"""

from __future__ import annotations

import argparse
import json
import math
import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np

from cf2.samples import registry as datasets
from cf2.samples import training
from cf2.samples.training import Recipe

PAGE = Path(__file__).parent / "NOTES.md"
BEGIN, END = "<!-- recipes: begin -->", "<!-- recipes: end -->"
SEEDS = (0, 1, 2)
HELD_OUT = 0.2
BEHIND = 0.05  # what is so far behind the best of the screening is not trained for long

SCREENED = Recipe(hidden=32, aggregation="sum", readout="last", epochs=600, lr=0.01, schedule="cosine")
LONG = 1000  # epochs of those that were not dropped
NEAR, LONGEST = 0.02, 2000  # those so near to the best of them are trained for as long as the recipe before
SCALES, DECAYS, WIDTHS = (0.03, 0.1, 0.3, 1.0), (0.0, 5e-4, 5e-3), (16, 32, 64)

GRIDS = ("ba-shapes", "tree-cycles")
#: The recipes that the other sets had before: each is set against a few others.
INCUMBENTS: Mapping[str, Recipe] = {
    "mutag0": Recipe(hidden=128, aggregation="sum", dense=3, epochs=40, lr=0.003, batch_size=256),
    "nci1": Recipe(hidden=16, aggregation="sum", dense=3, epochs=40, lr=0.005, batch_size=256),
    "citeseer": Recipe(hidden=32, aggregation="sum", scale=0.3, epochs=100, lr=0.01, weight_decay=5e-4, dropout=0.5),
}
#: What is set against the incumbent: the fields that differ.
OTHERS: Mapping[str, Sequence[dict[str, Any]]] = {
    "nci1": ({"hidden": 32}, {"hidden": 64}, {"weight_decay": 5e-4}),
    "citeseer": ({"hidden": 16}, {"weight_decay": 5e-3}),
    "mutag0": ({"hidden": 64},),
}
LAST = ({"lr": 0.003}, {"lr": 0.005}, {"lr": 0.03})  # tried on the chosen shape of a synthetic set


@dataclass(frozen=True)
class Figure:
    """The held-out accuracies of a recipe, one per seed, and how many instances each is of."""

    accuracies: tuple[float, ...]
    held_out: int

    @property
    def mean(self) -> float:
        return float(np.mean(self.accuracies))

    @property
    def error(self) -> float:
        """The standard error of the mean: over seeds, but at least that of so many independent answers."""
        spread = float(np.std(self.accuracies, ddof=1)) / math.sqrt(len(self.accuracies))
        counted = math.sqrt(self.mean * (1 - self.mean) / (len(self.accuracies) * self.held_out))
        return max(spread, counted)


class Figures:
    """The figures that are kept in a file, and those that are trained because the file does not have them."""

    def __init__(self, path: Path) -> None:
        self.path = path
        lines = path.read_text(encoding="utf-8").splitlines() if path.is_file() else []
        self.known = {line["key"]: line for line in map(json.loads, lines)}

    def of(self, name: str, recipe: Recipe) -> Figure:
        lines = [self._line(name, recipe, seed) for seed in SEEDS]
        return Figure(tuple(line["accuracy"] for line in lines), lines[0]["held_out"])

    def _line(self, name: str, recipe: Recipe, seed: int) -> dict[str, Any]:
        key = json.dumps([name, seed, asdict(recipe)], sort_keys=True)
        if key not in self.known:
            start = time.process_time()
            accuracy, count = held_out_accuracy(name, recipe, seed)
            line = {"key": key, "accuracy": accuracy, "held_out": count, "cpu": time.process_time() - start}
            with self.path.open("a", encoding="utf-8") as file:
                file.write(json.dumps(line) + "\n")
            self.known[key] = line
        return dict(self.known[key])


def held_out_accuracy(name: str, recipe: Recipe, seed: int) -> tuple[float, int]:
    """Train on the first four fifths of the training part; the accuracy on the last fifth, and its size."""
    dataset = datasets.load(name)
    ids = datasets.split(dataset, seed)[0]
    learned = int(len(ids) * (1 - HELD_OUT))
    model, _ = training.train(dataset, seed=seed, **asdict(replace(recipe, instances=learned)))
    held_out = ids[learned:]
    right = training.predict(model, dataset)[held_out] == dataset.labels[held_out]
    return float(right.float().mean()), len(held_out)


def simplest(figures: Mapping[Recipe, Figure]) -> Recipe:
    """Of the recipes within one standard error of the best mean, the most regularised and smallest."""
    best = max(figures.values(), key=lambda figure: figure.mean)
    near = [recipe for recipe, figure in figures.items() if figure.mean >= best.mean - best.error]
    return min(near, key=lambda r: (-r.weight_decay, r.hidden, -figures[r].mean))


def kept_unless_beaten(incumbent: Recipe, figures: Mapping[Recipe, Figure]) -> Recipe:
    """The recipe with the best mean, if it is ahead of the incumbent by more than one standard error."""
    best = max(figures, key=lambda recipe: figures[recipe].mean)
    own = figures[incumbent]
    return best if figures[best].mean > own.mean + own.error else incumbent


Stage = tuple[str, dict[Recipe, Figure], Recipe | None]


def stages(name: str, known: Figures) -> Iterator[Stage]:
    """What is compared, one after the other: a title, the figures, and what the rule chooses of them."""
    if name in INCUMBENTS:
        incumbent = INCUMBENTS[name]
        tried = [incumbent, *(replace(incumbent, **changes) for changes in OTHERS[name])]
        figures = {recipe: known.of(name, recipe) for recipe in tried}
        yield "", figures, kept_unless_beaten(incumbent, figures)
        return
    screened = {
        recipe: known.of(name, recipe)
        for decay in DECAYS
        for scale in SCALES
        for recipe in [replace(SCREENED, weight_decay=decay, scale=scale)]
    }
    yield "screening, 600 epochs", screened, None
    best = max(figure.mean for figure in screened.values())
    tried = []
    for decay in DECAYS:
        group = {recipe: figure for recipe, figure in screened.items() if recipe.weight_decay == decay}
        first = max(group, key=lambda recipe: group[recipe].mean)
        if group[first].mean >= best - BEHIND:
            tried += [replace(first, hidden=hidden, epochs=LONG) for hidden in WIDTHS]
    trained = {recipe: known.of(name, recipe) for recipe in tried}
    yield f"{LONG:,} epochs", trained, None
    best = max(figure.mean for figure in trained.values())
    near = [replace(recipe, epochs=LONGEST) for recipe, figure in trained.items() if figure.mean >= best - NEAR]
    longest = {recipe: known.of(name, recipe) for recipe in near}
    shape = simplest(longest)
    yield f"{LONGEST:,} epochs", longest, shape
    last = {recipe: known.of(name, recipe) for recipe in [shape, *(replace(shape, **one) for one in LAST)]}
    yield "the chosen shape, trained otherwise", last, kept_unless_beaten(shape, last)


def row(recipe: Recipe, figure: Figure, chosen: bool) -> str:
    """A line of the table."""
    shape = f"hidden {recipe.hidden}, × {recipe.scale:g}, decay {recipe.weight_decay:g}"
    ways = f"lr {recipe.lr:g}, {recipe.epochs:,} epochs"
    accuracies = ", ".join(f"{100 * accuracy:.1f}" for accuracy in figure.accuracies)
    mark = "**" if chosen else ""
    return f"| {mark}{shape}{mark} | {ways} | {accuracies} | {100 * figure.mean:.2f} ± {100 * figure.error:.2f} |"


def tables(known: Figures, names: Sequence[str]) -> str:
    """The tables of the page, best first within each; what is chosen is bold."""
    lines = []
    for name in names:
        for title, figures, chosen in stages(name, known):
            lines += [f"| {name}{', ' if title else ''}{title} | training | held out, by seed | mean ± error |"]
            lines += ["|---|---|---|--:|"]
            order = sorted(figures, key=lambda recipe: -figures[recipe].mean)
            lines += [row(recipe, figures[recipe], recipe == chosen) for recipe in order] + [""]
    return "\n".join(lines)


def main() -> None:
    """Train what is missing, print the tables, and write them if that is asked for."""
    asked = argparse.ArgumentParser(description=__doc__)
    asked.add_argument("file", type=Path)
    asked.add_argument("--datasets", nargs="*", default=[*GRIDS, *INCUMBENTS])
    asked.add_argument("--write", action="store_true")
    given = asked.parse_args()
    text = tables(Figures(given.file), given.datasets)
    print(text)
    if given.write:
        head, rest = PAGE.read_text(encoding="utf-8").split(BEGIN)
        PAGE.write_text(f"{head}{BEGIN}\n\n{text}\n{END}{rest.split(END)[1]}", encoding="utf-8")


if __name__ == "__main__":
    main()
