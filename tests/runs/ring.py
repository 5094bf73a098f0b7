"""A ring of 40 nodes with chords and an untrained model, as the source of a run; half of its nodes have an answer."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import torch
from torch_geometric.data import Data

from cf2.options import Spec
from cf2.runs.source import ModelAndData
from cf2.runs.store import Store
from cf2.samples.models import build
from cf2.samples.sources import fingerprint

KEYS = list(range(0, 40, 2))


def ring_source(weights: int = 7, root: str | None = None, swapped: bool = False) -> ModelAndData:
    """The ring; `weights` draws another model, `root` says that its data lies elsewhere, `swapped` orders its edges."""
    with torch.random.fork_rng():
        torch.manual_seed(weights)
        model = build("gcn", task="node", num_features=4, num_classes=3, hidden=8, layers=2)
    at = torch.arange(40)
    ahead = torch.cat([torch.stack([at, (at + 1) % 40]), torch.stack([at, (at * 7 + 3) % 40])], 1)
    ahead = ahead[:, ahead[0] != ahead[1]]
    both = torch.cat([ahead.flip(0), ahead] if swapped else [ahead, ahead.flip(0)], 1)
    data = Data(x=torch.eye(4)[at % 4], edge_index=both, y=at % 3)
    description = {"kind": "test", "weights": fingerprint(model.state_dict().values()), "root": root}
    return ModelAndData(model, "node", [data], ("a", "b", "c"), description=description)


def spec_of(**options: Any) -> Spec:
    """The paper's procedure, of few epochs; other options as given."""
    return Spec(**{"method": "cf2-relaxed", "settings": {"epochs": 12}, **options})


def make(path: Path, **changes: Any) -> Store:
    """A run of the ring, in chunks of three keys."""
    options: dict[str, Any] = {"source": ring_source(), "spec": spec_of(), "keys": KEYS, "chunk_size": 3}
    return Store.create(path, **{**options, **changes})


def left(run: Store) -> list[int]:
    """The keys of the first job that are not finished."""
    return [key for chunk in run.pending(run.jobs()[0]) for key in chunk.keys if key not in chunk.done]


def shard_files(run: Store) -> list[Path]:
    """What lies among the shards."""
    return sorted((run.path / "shards").iterdir())


def contents(path: Path) -> dict[str, bytes | None]:
    """Everything below a directory."""
    return {str(p.relative_to(path)): p.read_bytes() if p.is_file() else None for p in path.rglob("*")}
