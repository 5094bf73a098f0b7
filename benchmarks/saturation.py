"""How far F_NS of the paper's procedure depends on the scale of the logits, which no prediction depends on.

    python benchmarks/saturation.py [--most 100]

The last layer of each shipped model is divided by 4, so that its probabilities are less saturated and its predictions
the same. `cf2-relaxed` explains the same instances before and after, with the λ of the paper and that of its rule.
"""

from __future__ import annotations

import argparse
import copy
import sys
from dataclasses import replace
from pathlib import Path
from typing import Any

import torch

from cf2.models.soft_masks import single_thread
from cf2.options import Spec
from cf2.results import metrics
from cf2.runs.session import Session
from cf2.samples.sources import from_dataset

sys.path.insert(0, str(Path(__file__).parent.parent))
import figures

from reproduction.published import BY_RULE, COLUMNS, Column, method_of, paper_settings

DIVISOR = 4  # of the logits
FIELDS = {"F_NS %": ".1f", "size": ".1f", "of all units %": ".0f"}
HEAD = {"data set": "", "λ": "", "n": "d"}
HEAD |= {f"{field}{words}": form for field, form in FIELDS.items() for words in ("", f", logits / {DIVISOR}")}
WAYS = {"the paper's": "cf2-relaxed", "by its rule": BY_RULE}


def row(column: Column, words: str, most: int) -> list[Any]:
    """One row of the table."""
    source = from_dataset(column.dataset)
    divided = copy.deepcopy(source.model)
    last = [layer for layer in divided.modules() if isinstance(layer, torch.nn.Linear)][-1]
    with torch.no_grad():
        for weights in last.parameters():
            weights /= DIVISOR
    method, own = method_of(WAYS[words])
    settings = paper_settings(method, column.dataset, features=column.units != "edges") | own
    spec, keys = Spec(method=method, units=(column.units,), settings=settings), source.keys()[:most]
    found = []
    for model in (source.model, divided):
        with Session(replace(source, model=model, _targets={}).request(keys, spec)) as session:
            found.append(session.explain(keys))
    assert [e.prediction for e in found[0]] == [e.prediction for e in found[1]]
    values = [(100 * metrics.fns(e), metrics.size(e), 100 * (1 - metrics.sparsity(e))) for e in found]
    return [column.name, words, len(keys), *(value for pair in zip(*values) for value in pair)]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--most", type=int, default=100, help="instances of each data set")
    given = parser.parse_args()
    rows = []
    with single_thread():
        for column in COLUMNS:
            for words in WAYS:
                rows.append(row(column, words, given.most))
                print(*(f"{name}: {value:{form}};" for (name, form), value in zip(HEAD.items(), rows[-1])), flush=True)
    shipped = list(dict.fromkeys(column.dataset for column in COLUMNS))
    figures.keep("saturation", "python benchmarks/saturation.py", HEAD, rows, shipped)


if __name__ == "__main__":
    main()
