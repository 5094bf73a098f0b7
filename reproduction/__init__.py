"""The paper's tables and figures as data, and the code that fills them; it comes with the source, not with a wheel.

result = reproduce("results", tables=["causal"], datasets=["tree-cycles"])
result["rows"][0]["fns"], result["rows"][0]["published"]["fns"]
"""

from __future__ import annotations

from reproduction import tables
from reproduction.published import COLUMNS, FIGURES, TABLES
from reproduction.reproduce import reproduce

__all__ = ["COLUMNS", "FIGURES", "TABLES", "reproduce", "tables"]
