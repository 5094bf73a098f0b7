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
from torch_geometric.nn import GCN
torch.manual_seed(0)
edges = torch.tensor([[0, 1, 1, 2, 2, 3, 3, 4, 4, 0], [1, 0, 2, 1, 3, 2, 4, 3, 0, 4]])
data, model = Data(x=torch.randn(5, 3), edge_index=edges), GCN(3, 8, 2, 2).eval()
found = cf2.explain(model, data, range(5), units=("edges", "features"))
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
        page.locator(".cf2-live g[data-unit] .cf2-hit").first.click(force=True)
        until(page, f"{count} === 1")
        until(page, "before => document.querySelector('.cf2-now').dataset.probabilities !== before", before)
        feature = page.locator(".cf2-live .cf2-units label", has_text=re.compile("feature")).first
        feature.locator("input").click()
        until(page, f"{count} === 2")
        page.get_by_role("button", name="Next", exact=True).click()
        until(page, "document.querySelector('.cf2-live h3').innerText.includes('node 1')")
        assert page.evaluate(count) == 0
        if folder := os.environ.get("CF2_SCREENSHOTS"):
            page.locator(".cf2-live").screenshot(path=f"{folder}/widget.png")
