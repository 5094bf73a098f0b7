"""How long it takes to summarise many explanations: `python benchmarks/patterns.py [--keys 2000] [--dataset nci1]`.

With `--rules` it prints the edit rules instead, and what they cover: the figures of docs/patterns.md are those of
`--rules --keys 120 --dataset mutag` and `--dataset nci1`.

Explains the first keys of a data set of graphs, which is not timed, and then finds their patterns, counted and tested
on the model, on one thread. Prints JSON; seconds are CPU seconds, so that a busy machine does not matter.
"""

from __future__ import annotations

import argparse
import json
import time

from cf2.paper.sources import from_dataset
from cf2.results.explanations import Explanations
from cf2.runs.model_and_data import ModelAndData
from cf2.runs.session import Session
from cf2.spec import Key, Question, Spec


def explained(source: ModelAndData, keys: list[Key], question: Question) -> Explanations:
    request = source.request(keys, Spec(question=question, settings={"effort": "quick"}))
    with Session(request) as session:
        return Explanations(tuple(session.explain(keys)), request.context() | source.context(keys))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--dataset", default="nci1")
    parser.add_argument("--keys", type=int, default=2000)
    parser.add_argument("--rules", action="store_true")
    asked = parser.parse_args()
    source = from_dataset(asked.dataset)
    if asked.rules:
        changed = explained(source, source.keys()[: asked.keys], "counterfactual")
        rules = changed.rules(source.model, source.targets(), most=700)
        print(rules, rules.about, sep="\n")
        return
    keys: list[Key] = list(range(min(asked.keys, len(source))))
    found = explained(source, keys, "why")
    seconds = {}
    started = time.process_time()
    found.patterns()
    seconds["counted"] = time.process_time() - started
    started = time.process_time()
    tested = found.patterns(source.model, source.targets())
    seconds["tested"] = time.process_time() - started
    about = {"dataset": asked.dataset, "explanations": len(found), "patterns": len(tested)}
    print(json.dumps(about | {name: round(value, 1) for name, value in seconds.items()}))
    print(tested)


if __name__ == "__main__":
    main()
