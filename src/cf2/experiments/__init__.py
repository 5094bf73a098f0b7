"""The paper's tables and figures as data, and the code that fills them.

result = reproduce("results", tables=["causal"], datasets=["tree-cycles"])
result["rows"][0]["fns"], result["rows"][0]["published"]["fns"]
"""

from __future__ import annotations

from cf2.experiments.evaluate import evaluate_run
from cf2.experiments.published import COLUMNS, FIGURES, METHODS, TABLES
from cf2.experiments.reproduce import reproduce

__all__ = ["COLUMNS", "FIGURES", "METHODS", "TABLES", "evaluate_run", "reproduce"]
