"""PaGE-Link's users and items: paths are those that the file says, and graphs are kept under its digest."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
import torch

from cf2.errors import CF2Error
from cf2.samples import registry as datasets
from reproduction import tasks

pytestmark = pytest.mark.usefixtures("cache")

BUYS, BACK = "user|buys|item", "item|bought_by|user"
BOUGHT = [[0, 1, 1, 2, 2], [0, 0, 1, 1, 2]]
PATH = [[["user", "buys", "item"], 0, 0], [["item", "bought_by", "user"], 0, 1], [["user", "buys", "item"], 1, 1]]


def content(**changes: Any) -> dict[str, Any]:
    """Three users and three items in a chain; user 0 likes item 1 because user 1 bought what it bought."""
    edges = {BUYS: BOUGHT, BACK: BOUGHT[::-1], "user|likes|item": [[0, 1], [1, 2]], **changes.pop("edges", {})}
    truth = [{"pair": [["user", 0], ["item", 1]], "paths": [PATH]}]
    return {"nodes": {"user": 3, "item": 3}, "edges": edges, "truth": truth, **changes}


def write(root: Path, value: Any) -> Path:
    path = root / "PaGELink" / "synthetic.json"
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(value if isinstance(value, str) else json.dumps(value))
    return root


def test_paths_become_masks_of_edges_and_of_their_mirror_images(tmp_path: Path) -> None:
    dataset = datasets.load("page-link", root=write(tmp_path, content()))
    assert dataset.data.edge_types == [("item", "bought_by", "user"), ("user", "buys", "item")]
    (found,) = dataset.truths((0, 1))
    for kind, mask in found.items():
        chosen = dataset.data[kind].edge_index[:, mask].t().tolist()
        wanted = [[0, 0], [1, 0], [1, 1]]
        assert sorted(chosen) == sorted(wanted if kind[0] == "user" else [pair[::-1] for pair in wanted])
    assert all(torch.equal(found[kind], mask) for kind, mask in dataset.truth((0, 1)).items())
    assert dataset.truths((2, 0)) == []
    assert dataset.truth((2, 0)) is None
    with pytest.raises(CF2Error, match=r"\(0, 0\) to \(2, 2\)"):
        dataset.truth((3, 0))


DAMAGED = {
    "no json": ("{", "JSON"),
    "no truth": ({"nodes": {}, "edges": {}}, "KeyError"),
    "no likes": (content(edges={"user|likes|item": [[], []]}), "nothing that a user likes"),
    "beyond": (content(edges={BUYS: [[0], [3]]}), "user|buys|item between nodes that are not there"),
    "twice": (content(edges={BUYS: [[0, 0], [1, 1]]}), "twice"),
    "no such step": (content(edges={BUYS: [[0], [0]]}), "a step that is no edge"),
    "10^12 users": (content(nodes={"user": 10**12, "item": 3}), "1,000,000,000,003 nodes"),
}


@pytest.mark.parametrize("case", DAMAGED)
def test_a_file_whose_parts_do_not_fit_is_refused(tmp_path: Path, case: str) -> None:
    value, says = DAMAGED[case]
    with pytest.raises(CF2Error) as error:
        datasets.load("page-link", root=write(tmp_path, value))
    assert says in str(error.value)


def test_a_file_that_is_not_there_is_named_with_its_form(tmp_path: Path) -> None:
    with pytest.raises(CF2Error, match=r"PaGELink/synthetic\.json, and it is missing.*CF2_DATA.*`truth`"):
        datasets.load("page-link", root=tmp_path)


@pytest.mark.data
def test_the_real_graph_has_714_links_with_paths_of_three_steps() -> None:
    dataset = datasets.load("page-link")
    assert {kind: int(dataset.data[kind].num_nodes) for kind in ("user", "item", "attr")} == {
        "user": 100,
        "item": 100,
        "attr": 50,
    }
    assert len(dataset) == 2 * 714
    links = dataset.keys((dataset.labels == 1).nonzero().view(-1))
    others = dataset.keys((dataset.labels == 0).nonzero().view(-1))
    assert len(set(links) | set(others)) == 2 * 714
    for key in links[::40]:
        for path in dataset.truths(key):
            assert sum(int(mask.sum()) for mask in path.values()) == 6  # three edges, both ways
    assert all(dataset.truths(key) == [] for key in others[::40])


def test_kept_graphs_are_the_same_and_made_again_after_any_change(tmp_path: Path, cache: Path) -> None:
    (tmp_path / "raw").write_text("a")
    graphs, calls = datasets.load("ba-2motifs").graphs[:5], []
    make = lambda: calls.append(1) or graphs  # noqa: E731
    for content, times in (("a", 1), ("a", 1), ("b", 2)):
        (tmp_path / "raw").write_text(content)
        for before, after in zip(graphs, tasks.kept("toy", tmp_path / "raw", make), strict=True):
            assert all(torch.equal(before[key], after[key]) for key in ("x", "edge_index", "y", "truth"))
        assert len(calls) == times
    for path in (cache / "processed").iterdir():
        path.write_bytes(path.read_bytes()[:100])
    assert len(tasks.kept("toy", tmp_path / "raw", make)) == 5
    assert len(calls) == 3
