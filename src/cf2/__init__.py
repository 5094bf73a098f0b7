"""Verified explanations of graph neural networks: sufficient, necessary, and as small as can be found.

    found = cf2.explain(model, data, nodes=[3, 17, 42])

Packages follow the data flow; a package imports only from those above it.

    errors     what was expected, what came, what to do
    options    every option, once: its type, its default, its meaning, how it is read
    graphs/    the user's data as graphs, typed graphs, targets
    units/     what an explanation is made of: kinds, edits, constraints, packs
    sets/      tests of sets of units, the search, the proof
    models/    how the user's model is called, soft masks, outputs, receptive fields
    methods/   one file per method
    results/   explanations, files, metrics, names
    runs/      a session, a run directory, engines
    patterns/  what the explanations of a class have in common
    report/    pictures, tables, one HTML page
    samples/   small data sets and the models that are shipped
    paper/     the paper's tables and figures
    pyg/       the methods as torch_geometric ExplainerAlgorithms
    web/       the what-if page
    cli/       the command line
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from cf2.api import Explainer, explain, fit
    from cf2.errors import CF2Error
    from cf2.methods.registry import register
    from cf2.methods.trained import load_trained
    from cf2.patterns.pattern import Pattern
    from cf2.patterns.prototype import prototype
    from cf2.patterns.summary import Patterns
    from cf2.results import metrics
    from cf2.results.explanation import Explanation
    from cf2.results.explanations import Explanations
    from cf2.results.files import load
    from cf2.samples import registry as datasets

__version__ = "0.2.0"
__all__ = [
    "CF2Error",
    "Explainer",
    "Explanation",
    "Explanations",
    "Pattern",
    "Patterns",
    "datasets",
    "explain",
    "fit",
    "load",
    "load_trained",
    "metrics",
    "prototype",
    "register",
]

_HOMES = {
    "CF2Error": "errors",
    "Explanation": "results.explanation",
    "Explanations": "results.explanations",
    "Pattern": "patterns.pattern",
    "Patterns": "patterns.summary",
    "Explainer": "api",
    "explain": "api",
    "fit": "api",
    "load": "results.files",
    "load_trained": "methods.trained",
    "prototype": "patterns.prototype",
    "register": "methods.registry",
}
_MODULES = {
    "datasets": "samples.registry",
    "experiments": "paper.experiments",
    "methods": "methods",
    "metrics": "results.metrics",
    "pyg": "pyg",
    "report": "report",
    "training": "samples.training",
}


def __getattr__(name: str) -> Any:
    """Load a public name when it is first used, so that `cf2 --help` does not wait for torch."""
    if name in _HOMES:
        return getattr(importlib.import_module(f"cf2.{_HOMES[name]}"), name)
    if name in _MODULES:
        return importlib.import_module(f"cf2.{_MODULES[name]}")
    raise AttributeError(f"module 'cf2' has no attribute {name!r}")


def __dir__() -> list[str]:
    return sorted([*__all__, *_MODULES, "__version__"])
