"""Verified explanations of graph neural networks: sufficient, necessary, and as small as can be found.

    found = cf2.explain(model, data, nodes=[3, 17, 42])

Packages follow the data flow; each imports only from those above it.

    errors     one error: what was expected, what came, what to do
    options    every option of a request, as one value
    storage    files that appear whole or not at all
    sets/      search, proof and verdicts over sets of units; torch only, no graphs
    graphs/    what people have, read into plain graphs, and which output is explained
    units/     kinds of unit, edits, constraints, and packs of many instances
    models/    how the model is called, masked and checked, and the oracle of the search
    methods/   one file per explanation method
    results/   explanations as frozen values, with their files and metrics
    runs/      a session, a run directory, and engines
    report/    words, pictures and one HTML page
    patterns/  what the explanations of a whole class share
    samples/   small data sets and trained models
    pyg/       the methods as torch_geometric explainer algorithms
    web/       the what-if page
    cli/       the command line
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from cf2.api import Explainer, counterfactual, explain, fit
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
    from cf2.runs.check import Check, check
    from cf2.runs.functions import explain_sets
    from cf2.samples import registry as datasets

__version__ = "0.3.0"
__all__ = [
    "CF2Error",
    "Check",
    "Explainer",
    "Explanation",
    "Explanations",
    "Pattern",
    "Patterns",
    "check",
    "counterfactual",
    "datasets",
    "explain",
    "explain_sets",
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
    "Check": "runs.check",
    "Explainer": "api",
    "check": "runs.check",
    "counterfactual": "api",
    "explain": "api",
    "explain_sets": "runs.functions",
    "fit": "api",
    "load": "results.files",
    "load_trained": "methods.trained",
    "prototype": "patterns.prototype",
    "register": "methods.registry",
}
_MODULES = {
    "datasets": "samples.registry",
    "methods": "methods",
    "metrics": "results.metrics",
    "pyg": "pyg",
    "report": "report",
    "training": "samples.training",
}


def __getattr__(name: str) -> Any:
    """Load a public name when it is first used, so that `cf2 --help` does not wait for torch."""
    if name in _HOMES:
        return globals().setdefault(name, getattr(importlib.import_module(f"cf2.{_HOMES[name]}"), name))
    if name in _MODULES:
        return importlib.import_module(f"cf2.{_MODULES[name]}")
    raise AttributeError(f"module 'cf2' has no attribute {name!r}")


def __dir__() -> list[str]:
    return sorted([*__all__, *_MODULES, "__version__"])
