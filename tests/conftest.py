"""What all tests share: one thread, no network, and small graphs with known models."""

from __future__ import annotations

import os

import pytest

os.environ.setdefault("OMP_NUM_THREADS", "1")
os.environ.setdefault("MPLBACKEND", "Agg")


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Tests that are marked `data` are skipped where the raw files are not."""
    if os.environ.get("CF2_DATA"):
        return
    for item in items:
        if item.get_closest_marker("data"):
            item.add_marker(pytest.mark.skip(reason="CF2_DATA does not name a directory with the raw files"))
