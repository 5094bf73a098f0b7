"""How quick the page and the report are.

    python benchmarks/page.py [--clicks 41] [--molecules 500] [--json]

The page: seconds from asking a server that is up to the first paint, and to the first answer of the model; and
milliseconds from a click on an edge to the new answer on the screen, on an instance of 500 edges. The report: CPU
seconds and megabytes for molecules with pictures. Needs Chromium, playwright and the extra `web`.
"""

from __future__ import annotations

import argparse
import json
import logging
import os
import shutil
import statistics
import tempfile
import time
from pathlib import Path

import torch
from torch_geometric.data import Data
from torch_geometric.nn import GCN, global_mean_pool

import cf2
from cf2.models.soft_masks import single_thread
from cf2.report.html import write_report
from cf2.results.explanations import Explanations
from cf2.runs.source import ModelAndData
from cf2.samples.sources import from_dataset
from cf2.web import build_app
from cf2.web.server import served

ARGUMENTS = ("--no-sandbox", "--disable-gpu", "--no-first-run", "--disable-background-networking")
NODES, EDGES = 300, 500
CLICK = """unit => new Promise(done => {
    const answer = document.querySelector('#answer'), edge = document.querySelector(`#picture g[data-unit="${unit}"]`);
    const started = performance.now();
    const watch = new MutationObserver(() => {
        watch.disconnect();
        requestAnimationFrame(() => done(performance.now() - started));
    });
    watch.observe(answer, { childList: true, subtree: true, characterData: true, attributes: true });
    edge.dispatchEvent(new MouseEvent('click', { bubbles: true }));
})"""


class Pooled(torch.nn.Module):
    """Three layers and a mean over the nodes of each graph."""

    def __init__(self) -> None:
        super().__init__()
        self.layers = GCN(16, 64, 3, 4)

    def forward(self, x: torch.Tensor, edge_index: torch.Tensor, batch: torch.Tensor | None = None) -> torch.Tensor:
        return global_mean_pool(self.layers(x, edge_index), batch)


def instance() -> tuple[ModelAndData, Explanations]:
    """A connected random graph of 500 edges, a graph classifier with random weights, and ten edges by their slopes."""
    made = torch.Generator().manual_seed(0)
    pairs = {(int(torch.randint(0, node, (1,), generator=made)), node) for node in range(1, NODES)}
    while len(pairs) < EDGES:
        one, other = sorted(torch.randint(0, NODES, (2,), generator=made).tolist())
        pairs |= {(one, other)} if one != other else set()
    ends = torch.tensor(sorted(pairs)).t()
    data = Data(x=torch.randn(NODES, 16, generator=made), edge_index=torch.cat([ends, ends.flip(0)], 1))
    torch.manual_seed(0)
    model = Pooled().eval()
    found = cf2.explain(model, [data], method="gradient", k=10)
    return ModelAndData(model, "graph", [data]), found


def measure_page(clicks: int) -> dict[str, float]:
    """The first paint, the first answer, and the median click."""
    from playwright.sync_api import sync_playwright

    path = os.environ.get("CF2_CHROMIUM") or shutil.which("chromium") or shutil.which("google-chrome")
    source, found = instance()
    app = build_app(source, {"gradient": found})
    with sync_playwright() as playwright, single_thread(), served(app) as address:
        browser = playwright.chromium.launch(executable_path=path, args=ARGUMENTS)
        page = browser.new_page(viewport={"width": 1366, "height": 768})
        started = time.monotonic()
        page.goto(address)
        page.wait_for_selector(".cf2-now", timeout=120_000)
        answered = time.monotonic() - started
        paint = page.evaluate("performance.getEntriesByName('first-contentful-paint')[0].startTime")
        page.wait_for_timeout(2000)
        drawn = "[...document.querySelectorAll('#picture g[data-unit]')].map(edge => Number(edge.dataset.unit))"
        units = page.evaluate(drawn)
        times = []
        for number in range(clicks):
            times.append(page.evaluate(CLICK, units[number % len(units)]))
            page.wait_for_timeout(200)
        browser.close()
    return {
        "edges": float(found[0].num_units),
        "first paint, s": paint / 1000,
        "first answer, s": answered,
        "click, median ms": statistics.median(times),
        "click, 90 % ms": statistics.quantiles(times, n=10)[-1],
    }


def measure_report(count: int) -> dict[str, float]:
    """The report about molecules, all of them drawn."""
    source = from_dataset("mutag0")
    keys = list(range(count))
    found = cf2.explain(source.model, source.graphs, keys, method="gradient", k=6)
    found = Explanations(found.items, source.context(keys))
    with tempfile.TemporaryDirectory() as folder:
        started = time.process_time()
        path = write_report([found], Path(folder) / "report.html", pictures=count)
        return {"report, CPU s": time.process_time() - started, "report, MB": path.stat().st_size / 1e6}


def main() -> None:
    logging.getLogger("werkzeug").setLevel(logging.ERROR)
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--clicks", type=int, default=41)
    parser.add_argument("--molecules", type=int, default=500)
    parser.add_argument("--json", action="store_true")
    given = parser.parse_args()
    found = measure_page(given.clicks) | measure_report(given.molecules)
    print(json.dumps(found) if given.json else "\n".join(f"{name}: {value:.3g}" for name, value in found.items()))


if __name__ == "__main__":
    main()
