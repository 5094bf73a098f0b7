"""The paper's tables and figures as data, and the code that fills them.

result = reproduce("results", tables=["causal"], datasets=["tree-cycles"])
result["rows"][0]["fns"], result["rows"][0]["published"]["fns"]
"""

from __future__ import annotations

from cf2.paper.experiments.published import COLUMNS, FIGURES, TABLES
from cf2.paper.experiments.reproduce import reproduce

__all__ = ["COLUMNS", "FIGURES", "TABLES", "reproduce"]
