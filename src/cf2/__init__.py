"""Verified explanations of graph neural networks: sufficient, necessary, and as small as can be found.

    found = cf2.explain(model, data, nodes=[3, 17, 42])

To read the package, follow the data. Each module imports only from those above it.

    errors        what was expected, what came, what to do
    instances     one prediction to explain: its computation graph, its units
    packing       many instances -> one disjoint graph, and back
    masking       borrowing the user's model, and putting everything back
    predictor     the only code that calls the model: under soft masks, or after real removal
    computation   cutting exact computation graphs, and checking them
    objectives    one short function per equation
    optimise      the relaxed problem, all instances at once
    trials        packed tests of candidate sets
    exact         proof by exhaustion
    search        the constrained problem: the smallest verified set
    explanation   frozen results, tables, JSON and Parquet (`parquet`)
    methods/      one file a method
    work          what to explain and how, as one value
    api           cf2.explain and cf2.fit
    metrics       PN, PS, F_NS, size; `groundtruth`: against planted motifs
    pyg/          the same methods as torch_geometric ExplainerAlgorithms
    datasets/  models  recipes  checkpoints/  training
    subjects      a model with its data, by name
    runs          a run directory (`manifest`, `shards`);  engines/  where the work runs
    report/       tables, figures, one HTML page;  experiments/  the paper's tables and figures
    web/          the what-if page;  bench/  speed, as ratios
    terminal  demo  cli
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from cf2 import datasets, metrics
    from cf2.api import explain, fit
    from cf2.errors import CF2Error
    from cf2.explanation import Explanation, Explanations, load
    from cf2.methods.trained import load_trained

__version__ = "0.1.0"
__all__ = [
    "CF2Error",
    "Explanation",
    "Explanations",
    "datasets",
    "explain",
    "fit",
    "load",
    "load_trained",
    "metrics",
]

_HOMES = {
    "CF2Error": "errors",
    "Explanation": "explanation",
    "Explanations": "explanation",
    "explain": "api",
    "fit": "api",
    "load": "explanation",
    "load_trained": "methods.trained",
}
_MODULES = ("datasets", "metrics", "methods", "pyg", "training", "experiments", "report")


def __getattr__(name: str) -> Any:
    """Load a public name when it is first used, so that `cf2 --help` does not wait for torch."""
    if name in _HOMES:
        return getattr(importlib.import_module(f"cf2.{_HOMES[name]}"), name)
    if name in _MODULES:
        return importlib.import_module(f"cf2.{name}")
    raise AttributeError(f"module 'cf2' has no attribute {name!r}")


def __dir__() -> list[str]:
    return sorted([*__all__, *_MODULES, "__version__"])
