"""Small subjects with known explanations, and a real browser, for the tests of the report and the page."""

from __future__ import annotations

import os
import shutil
import threading
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor, nn
from torch_geometric.data import Data
from torch_geometric.nn import SimpleConv, global_add_pool

from cf2.computation import Computation
from cf2.explanation import Explanation, Explanations
from cf2.instances import Graph, Instance, graph_instances
from cf2.packing import pack
from cf2.predictor import Predictor
from cf2.subjects import Subject

ATOMS = ("C", "N", "O", "H")
HOSTILE = "<script>window.hacked = 1</script><img src=x onerror='window.hacked = 1'>\"'"


class RedNeighbours(nn.Module):
    """Class 1, 'busy', for a node with at least two neighbours whose first feature is 1."""

    def __init__(self) -> None:
        super().__init__()
        self.conv = SimpleConv(aggr="sum")

    def forward(self, x: Tensor, edge_index: Tensor, edge_weight: Tensor | None = None) -> Tensor:
        red = self.conv(x[:, :1], edge_index, edge_weight).squeeze(1)
        return torch.stack([torch.zeros_like(red), 4.0 * (red - 1.5)], 1)


class NitroGroup(nn.Module):
    """Class 0, 'mutagen', for a molecule with at least two N-O bonds."""

    def __init__(self) -> None:
        super().__init__()
        self.conv = SimpleConv(aggr="sum")

    def forward(
        self, x: Tensor, edge_index: Tensor, edge_weight: Tensor | None = None, batch: Tensor | None = None
    ) -> Tensor:
        oxygen = self.conv(x[:, 2:3], edge_index, edge_weight)
        bonds = global_add_pool(oxygen * x[:, 1:2], batch).squeeze(1)
        return torch.stack([4.0 * (bonds - 1.5), torch.zeros_like(bonds)], 1)


def both_ways(pairs: Sequence[tuple[int, int]]) -> Tensor:
    return torch.tensor([*pairs, *((b, a) for a, b in pairs)]).t().contiguous()


def red_subject(nodes: int = 36, class_names: tuple[str, ...] = ("quiet", "busy")) -> Subject:
    """A ring with chords; every third node is red."""
    pairs = {tuple(sorted((i, (i + step) % nodes))) for i in range(nodes) for step in (1, 3)}
    x = torch.zeros(nodes, 2)
    x[:, 1], x[::3, 0] = 1.0, 1.0
    data = Data(x=x, edge_index=both_ways(sorted(pairs)), y=torch.arange(nodes) % 2)
    return Subject(model=RedNeighbours(), task="node", graphs=[data], class_names=class_names)


def nitrobenzene() -> Data:
    ring = [(i, (i + 1) % 6) for i in range(6)]
    atoms = "CCCCCCNOOHHHHH"
    bonds = [*ring, (0, 6), (6, 7), (6, 8), *((i, 8 + i) for i in range(1, 6))]
    x = torch.eye(4)[[ATOMS.index(atom) for atom in atoms]]
    return Data(x=x, edge_index=both_ways(bonds), y=torch.tensor([0]))


def molecule_subject() -> Subject:
    return Subject(model=NitroGroup(), task="graph", graphs=[nitrobenzene()], class_names=("mutagen", "non-mutagen"))


Choose = Callable[[Instance, np.ndarray], np.ndarray]


def red_edges(instance: Instance, pairs: np.ndarray) -> np.ndarray:
    """The smallest set that passes both tests where one does: all but one of the red edges, at least two."""
    here = [(pair == instance.key).any() and int(pair.sum()) - instance.key in RED for pair in pairs]
    reds = np.flatnonzero(here)
    chosen = np.zeros(len(pairs), dtype=bool)
    chosen[reds[: max(2, len(reds) - 1)]] = True
    return chosen


RED = frozenset(range(0, 3000, 3))


def first_edge(instance: Instance, pairs: np.ndarray) -> np.ndarray:
    """A bad method: whatever edge comes first."""
    return np.arange(len(pairs)) == 0


def explained(subject: Subject, keys: Sequence[int], choose: Choose, method: str, **more: Any) -> Explanations:
    """Explanations whose verdicts come from the model, whatever set is chosen."""
    predictor = Predictor(subject.model, subject.task)
    items = []
    with predictor:
        if subject.task == "node":
            instances = Computation(predictor, Graph(subject.graphs[0])).instances(list(keys))
        else:
            instances = graph_instances(subject.graphs, keys=keys)
        for instance in instances:
            items.append(_explained(predictor, instance, choose, method, subject, **more))
    names = {"class_names": list(subject.class_names), "dataset": "toy", "model": "a toy"}
    return Explanations(tuple(items), names)


def _explained(
    predictor: Predictor, instance: Instance, choose: Choose, method: str, subject: Subject, **more: Any
) -> Explanation:
    features = bool(more.pop("features", False))
    packed = pack([instance], features=features)
    pairs = instance.unit_edges.numpy()
    entries = instance.feature_entries().numpy() if features else np.zeros((0, 2), dtype=np.int64)
    entries = np.stack([instance.node_ids.numpy()[entries[:, 0]], entries[:, 1]], 1)
    selected = np.concatenate([choose(instance, pairs), np.zeros(len(entries), dtype=bool)])
    keep = torch.from_numpy(selected)
    every = predictor.predict(packed)[0].numpy()
    only, without = (predictor.removed(packed, kept)[0].numpy() for kept in (keep, ~keep))
    said = int(every.argmax())
    good = bool(only.argmax() == said), bool(without.argmax() != said)
    label = int(subject.graphs[0].y[instance.key]) if subject.task == "node" else 0
    known = {"status": "found" if all(good) else "unverified", "label": label} | more
    return Explanation(
        key=instance.key,
        task=subject.task,
        prediction=said,
        unit_edges=pairs,
        unit_features=entries,
        scores=selected.astype(np.float32),
        selected=selected,
        probabilities=every,
        only=only,
        without=without,
        sufficient=good[0],
        necessary=good[1],
        method=method,
        **known,
    )


ARGUMENTS = [
    "--no-sandbox",
    "--disable-gpu",
    "--disable-quic",
    "--no-first-run",
    "--disable-background-networking",
    "--disable-component-update",
    "--disable-sync",
]


def chromium() -> str:
    """Where the system's Chromium is; skips the test if there is none."""
    names = ("chromium", "chromium-browser", "google-chrome", "google-chrome-stable")
    found = os.environ.get("CF2_CHROMIUM") or next(filter(None, map(shutil.which, names)), None)
    if found is None:
        pytest.skip("no Chromium on this machine; install one or set CF2_CHROMIUM to its path")
    return found


@contextmanager
def launched() -> Iterator[Any]:
    """A real browser."""
    path = chromium()
    sync_api = pytest.importorskip("playwright.sync_api", reason="playwright is not installed")
    with sync_api.sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=path, args=ARGUMENTS)
        try:
            yield browser
        finally:
            browser.close()


@contextmanager
def new_page(browser: Any, **options: Any) -> Iterator[Any]:
    """A page; on leaving, no error may have been seen on its console and no foreign host been asked."""
    context = browser.new_context(**({"viewport": {"width": 1366, "height": 768}} | options))
    page = context.new_page()
    problems: list[str] = []
    page.on("console", lambda m: problems.append(m.text) if m.type == "error" else None)
    page.on("pageerror", lambda error: problems.append(str(error)))
    page.on("dialog", lambda dialog: (problems.append("dialog"), dialog.dismiss()))
    page.on("request", lambda r: None if _local(r.url) else problems.append(f"asked {r.url}"))
    try:
        yield page
        assert problems == []
    finally:
        context.close()


def _local(url: str) -> bool:
    return url.startswith(("http://127.0.0.1:", "file://", "data:", "blob:"))


@contextmanager
def served(app: Any) -> Iterator[str]:
    """The app on a free port of this machine, for the time of a test."""
    from werkzeug.serving import make_server

    server = make_server("127.0.0.1", 0, app.server, threaded=True)
    thread = threading.Thread(target=server.serve_forever)
    thread.start()
    try:
        yield f"http://127.0.0.1:{server.server_port}"
    finally:
        server.shutdown()
        thread.join()
        server.server_close()


def red_function() -> dict[str, Any]:
    """What a user's own function would return."""
    subject = red_subject()
    return {"model": subject.model, "data": subject.graphs[0], "class_names": list(subject.class_names)}
