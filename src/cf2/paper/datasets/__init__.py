"""The paper's data sets and the field's other standard ones, by name."""

from __future__ import annotations

from cf2.paper.datasets.constants import PAPER, PaperConstants
from cf2.paper.datasets.dataset import Dataset, instances_to_explain, split
from cf2.paper.datasets.registry import load, names, overview, statistics

__all__ = [
    "PAPER",
    "Dataset",
    "PaperConstants",
    "instances_to_explain",
    "load",
    "names",
    "overview",
    "split",
    "statistics",
]
