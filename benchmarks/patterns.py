"""Patterns against known truth, and what edit rules turn.

    python benchmarks/patterns.py truth [--keys 150] [--splits 5] [--write]
    python benchmarks/patterns.py rules [--keys 120] [--write]

Both print tables of NOTES.md, and with `--write` put them there. Answers are found by quick effort on the shipped
models.
"""

from __future__ import annotations

import argparse
from collections import Counter
from collections.abc import Sequence

import figures
import numpy as np

from cf2.options import Key, Spec
from cf2.patterns.summary import Patterns
from cf2.results.explanations import Explanations
from cf2.runs.session import Session
from cf2.runs.source import ModelAndData
from cf2.samples.sources import from_dataset

KNOWN = {"mutag0": "auto", "benzene": "auto", "fluoride-carbonyl": "auto", "ba-shapes": "none", "tree-cycles": "none"}
MEASURES = ("coverage", "precision", "necessity", "sufficiency")
RULES_OF = ("mutag", "nci1")
EDITS = {"removals": ("remove",), "all edits": ("remove", "add", "change")}


def explained(source: ModelAndData, keys: Sequence[Key], **asked: object) -> Explanations:
    request = source.request(keys, Spec(settings={"effort": "quick"}, **asked))  # type: ignore[arg-type]
    with Session(request) as session:
        return Explanations(tuple(session.explain(keys)), request.context() | source.context(keys))


def truth(keys: int, splits: int) -> list[str]:
    """A row per data set: its patterns by the first split, and all figures as means over the splits."""
    lines = ["| data | patterns | first in | " + " | ".join(MEASURES) + " | true edges found | of found, true |"]
    lines.append("|---|---|--:|" + "--:|" * (len(MEASURES) + 2))
    for name, labels in KNOWN.items():
        source = from_dataset(name)
        found = explained(source, source.keys()[:keys])
        made = [found.patterns(source.model, source.targets(), seed=s, most=700, labels=labels) for s in range(splits)]
        lines.append(f"| {name} | {truth_row(made)} |")
        print(lines[-1], flush=True)
    return lines


def truth_row(made: Sequence[Patterns]) -> str:
    firsts = Counter(one[0].pattern for one in made)
    texts = "; ".join(f"`{one.pattern.text}`" for one in made[0])
    shares = {name: [] for name in (*MEASURES, "recall", "right")}  # type: dict[str, list[float]]
    for one in made:
        jointly = one.about["jointly"].get(one[0].prediction, {})
        for name in MEASURES:
            value = jointly.get(name) or getattr(one[0], name)
            shares[name].append(value.value)
        shares["recall"].append(one.about["truth"]["recall"])
        shares["right"].append(one.about["truth"]["precision"])
    cells = [f"{100 * np.mean(values):.1f}" for values in shares.values()]
    return " | ".join([texts, f"{firsts[made[0][0].pattern]} of {len(made)}", *cells])


def rules(keys: int) -> list[str]:
    """A row per data set and kind of edits: what ten rules turn."""
    lines = ["| data, edits | rules | held-out predictions turned |", "|---|--:|--:|"]
    for name in RULES_OF:
        source = from_dataset(name)
        for words, edits in EDITS.items():
            found = explained(source, source.keys()[:keys], question="counterfactual", edits=edits)
            made = found.rules(source.model, source.targets(), count=10, most=700)
            of_class = Counter(one.prediction for one in made).most_common(1)[0][0]
            turned = made.about["together"][of_class]
            lines.append(
                f"| {name}, {words} | {sum(one.prediction == of_class for one in made)} | {100 * turned.value:.1f} %"
                f" ({100 * turned.low:.0f}–{100 * turned.high:.0f}) |"
            )
            print(lines[-1], made, sep="\n", flush=True)
    return lines


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("what", choices=("truth", "rules"))
    parser.add_argument("--keys", type=int, help="how many predictions are explained")
    parser.add_argument("--splits", type=int, default=5, help="how many splits into found on and tested on")
    parser.add_argument("--write", action="store_true", help="put the table into benchmarks/NOTES.md")
    asked = parser.parse_args()
    lines = truth(asked.keys or 150, asked.splits) if asked.what == "truth" else rules(asked.keys or 120)
    if asked.write:
        figures.fill(asked.what, "\n".join(lines))


if __name__ == "__main__":
    main()
