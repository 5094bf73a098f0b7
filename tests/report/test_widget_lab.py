"""The widget inside of JupyterLab: a click in the browser goes to the kernel, and its answer comes back."""

from __future__ import annotations

import json
import os
import re
import socket
import subprocess
import sys
import time
import urllib.request
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path

import pytest

from web.browser import launched, new_page, until

pytestmark = [pytest.mark.browser, pytest.mark.slow]

CELL = """
import torch, cf2
from torch_geometric.data import Data
from torch_geometric.nn import SimpleConv

class Busy(torch.nn.Module):
    # Class 1 for a node with at least two neighbours whose first feature is 1.
    def __init__(self):
        super().__init__()
        self.sums = SimpleConv(aggr="sum")
    def forward(self, x, edge_index, edge_weight=None):
        red = self.sums(x[:, :1], edge_index, edge_weight).squeeze(1)
        return torch.stack([torch.zeros_like(red), 4.0 * (red - 1.5)], 1)

pairs = [(node, (node + step) % 12) for node in range(12) for step in (1, 3)]
ends = torch.tensor(pairs).t()
x = torch.zeros(12, 2)
x[::3, 0], x[:, 1] = 1.0, 1.0
data, model = Data(x=x, edge_index=torch.cat([ends, ends.flip(0)], 1)), Busy()
found = cf2.explain(model, data, [3, 6], units=("edges", "features"), class_names=["quiet", "busy"])
found.widget(model, data)
"""


@pytest.fixture
def lab(tmp_path: Path) -> Iterator[str]:
    """The address of a JupyterLab with one notebook."""
    pytest.importorskip("jupyterlab", reason="jupyterlab is not installed")
    pytest.importorskip("anywidget", reason="anywidget is not installed")
    cell = {"cell_type": "code", "execution_count": None, "id": "a", "metadata": {}, "outputs": [], "source": CELL}
    kernel = {"kernelspec": {"display_name": "Python 3", "language": "python", "name": "python3"}}
    notebook = {"cells": [cell], "metadata": kernel, "nbformat": 4, "nbformat_minor": 5}
    (tmp_path / "widget.ipynb").write_text(json.dumps(notebook))
    with closing(socket.create_server(("127.0.0.1", 0))) as free:
        port = free.getsockname()[1]
    options = ["--no-browser", "--allow-root", f"--ServerApp.port={port}", "--IdentityProvider.token=t"]
    settings = os.environ | {"JUPYTER_CONFIG_DIR": str(tmp_path / "config"), "HOME": str(tmp_path)}
    command = [sys.executable, "-m", "jupyterlab", *options, f"--ServerApp.root_dir={tmp_path}"]
    with (tmp_path / "log").open("w") as log, subprocess.Popen(command, env=settings, stdout=log, stderr=log) as server:
        try:
            for _ in range(240):
                try:
                    urllib.request.urlopen(f"http://127.0.0.1:{port}/api/status?token=t", timeout=5)
                    break
                except OSError:
                    if server.poll() is not None:
                        pytest.fail((tmp_path / "log").read_text())
                    time.sleep(0.5)
            yield f"http://127.0.0.1:{port}/lab/tree/widget.ipynb?token=t"
        finally:
            server.terminate()


def test_clicks_in_jupyterlab_are_answered_by_the_kernel(lab: str, tmp_path: Path) -> None:
    with launched() as browser, new_page(browser) as page:
        page.goto(lab)
        page.wait_for_selector(".jp-Notebook .jp-CodeCell", timeout=120_000)
        page.locator(".jp-Notebook .jp-CodeCell .cm-content").first.click()
        page.wait_for_timeout(3000)  # the kernel starts
        page.keyboard.press("Shift+Enter")
        page.wait_for_selector(".cf2-live .cf2-now", timeout=120_000)
        count = "document.querySelectorAll('.cf2-live .cf2-units input:not(:checked)').length"
        assert page.evaluate(count) == 0
        before = page.locator(".cf2-now").get_attribute("data-probabilities")
        page.locator(".cf2-live g[data-unit]").first.focus()
        page.keyboard.press("Enter")
        until(page, f"{count} === 1")
        until(page, "before => document.querySelector('.cf2-now').dataset.probabilities !== before", before)
        feature = page.locator(".cf2-live .cf2-units label", has_text=re.compile("feature")).first
        feature.locator("input").click()
        until(page, f"{count} === 2")
        if folder := os.environ.get("CF2_SCREENSHOTS"):
            page.add_style_tag(content=".Toastify { display: none }")
            page.wait_for_timeout(1000)
            page.locator(".cf2-live").screenshot(path=f"{folder}/widget.png")
        page.get_by_role("button", name="Next", exact=True).click()
        until(page, "document.querySelector('.cf2-live h3').innerText.includes('node 6')")
        assert page.evaluate(count) == 0
