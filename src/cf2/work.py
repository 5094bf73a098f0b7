"""What to explain and how, as one value: it can be sent to another process and does the same there."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from types import TracebackType
from typing import Any

import torch
from torch import Tensor
from torch_geometric.data import Data

from cf2 import hubs
from cf2.computation import Computation, instance_chunks, predictions
from cf2.errors import CF2Error, require
from cf2.explanation import Explanation
from cf2.instances import Graph, Instance, check_nodes, graph_instances
from cf2.methods import get
from cf2.methods.method import Chunk, Ranking, conclude, verify
from cf2.methods.trained import Trained
from cf2.packing import pack
from cf2.predictor import Masking, Output, Predictor, Task
from cf2.search import Search

Progress = Callable[[int], None]

GROUP = 256  # keys that are cut at once, so that memory is bounded and the packs are the same on every engine
SETTLE = 64  # keys by which a work is settled


@dataclass(frozen=True, eq=False)
class Settled:
    """What one session measured and every other of the same work relies on: see `Session.settle`."""

    hops: int | None = None
    full: Tensor | None = None


@dataclass(frozen=True, eq=False)
class Work:
    """A model, its data (one Graph for nodes, a sequence of Data for graphs), a method and its settings."""

    model: torch.nn.Module
    source: Graph | Sequence[Data]
    method: str = "cf2"
    settings: dict[str, Any] = field(default_factory=dict)
    edges: bool = True
    features: bool = False
    search: Search | None = None  # search for a verified set from the method's scores
    seed: int | None = None
    output: Output = "auto"
    device: str | None = None
    directed: bool | None = None
    masking: Masking = "auto"  # "messages": soft masks on messages even where `forward` takes an edge_weight
    classes: dict[int, int] | None = None  # the class to explain by key, where it is not the predicted one
    labels: dict[int, int] | None = None
    trained: Any = None
    settled: Settled | None = None
    max_units: int | None = None  # refuse instances with more units, or `reduce` what may be chosen
    reduce: str | None = None

    def __post_init__(self) -> None:
        hubs.check_budget(self.max_units, self.reduce)
        get(self.method).make_settings(self.settings)
        require(self.edges or self.features, "Expected `edges` or `features` to be explained", got="neither")
        require(
            self.seed is None or (type(self.seed) is int and self.seed >= 0),
            "Expected `seed` to be a whole number of at least 0, or None",
            got=repr(self.seed),
        )

    @property
    def task(self) -> Task:
        return "node" if isinstance(self.source, Graph) else "graph"


class Session:
    """A Work with its model borrowed, so that many keys share what is measured once."""

    def __init__(self, work: Work, *, fitting: bool = False) -> None:
        self.work = work
        self.method = get(work.method)
        trained = work.trained
        given = trained.merge(work.method, work.settings) if isinstance(trained, Trained) else work.settings
        self.settings = self.method.make_settings(given)
        self.predictor = Predictor(work.model, work.task, output=work.output, device=work.device, masking=work.masking)
        known = work.settled or Settled()
        self.computation = (
            Computation(self.predictor, work.source, hops=known.hops, full=known.full)
            if isinstance(work.source, Graph)
            else None
        )
        if self.method.fit is not None and work.trained is None and not fitting:
            raise CF2Error(
                f"Expected a trained explainer for method {work.method!r}",
                got="none",
                do=f"Train one with cf2.fit(model, data, method={work.method!r}, …) and pass it as trained=….",
            )

    def __enter__(self) -> Session:
        self.predictor.__enter__()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.predictor.__exit__(kind, error, trace)

    def settle(self, keys: Sequence[int]) -> Work:
        """The work with everything decided that a session would find out from its first keys."""
        predictions(self.predictor, self.instances(keys[:SETTLE]))
        known = self.computation
        settled = Settled() if known is None else Settled(known.hops, known.full)
        return replace(self.work, output=self.predictor.output, settled=settled)

    def instances(self, keys: Sequence[int]) -> list[Instance]:
        """The checked computation graphs of the keys."""
        if self.computation is not None:
            return self.computation.instances(keys)
        assert not isinstance(self.work.source, Graph)
        return graph_instances(self.work.source, directed=self.work.directed, keys=keys)

    def chunks(self, keys: Sequence[int]) -> Iterator[Chunk]:
        """The keys as packed chunks, each with the model's predictions; what is too large is left out."""
        for start in range(0, len(keys), GROUP):
            instances = self.instances(keys[start : start + GROUP])
            yield from self._packed([i for i in instances if not self._is_too_large(i)])

    def _packed(self, instances: Sequence[Instance]) -> Iterator[Chunk]:
        for part in instance_chunks(self.predictor, instances):
            packed = pack(part, edges=self.work.edges, features=self.work.features)
            P = self.predictor.predict(packed)
            y = P.argmax(1)
            if self.work.classes is not None:
                y = torch.tensor([self.work.classes[i.key] for i in part], device=y.device)
                require(
                    int(y.min()) >= 0 and int(y.max()) < P.size(1),
                    f"Expected `target` to hold classes from 0 to {P.size(1) - 1}",
                    got=y.tolist(),
                )
            packed = packed.to(self.predictor.device)
            chunk = Chunk(self.predictor, part, packed, P, y, self.work.seed, self.work.trained)
            limit = self.work.max_units
            yield chunk if limit is None or self.work.reduce is None else hubs.reduced(chunk, limit)

    def explain(self, keys: Sequence[int], progress: Progress | None = None) -> list[Explanation]:
        """Explanations of the keys, in their order."""
        found: list[Explanation] = []
        for start in range(0, len(keys), GROUP):
            instances = self.instances(keys[start : start + GROUP])
            large = [self._is_too_large(instance) for instance in instances]
            found += self._explain([i for i, out in zip(instances, large) if not out], progress)
            for place, instance in enumerate(instances):
                if large[place]:
                    found.insert(start + place, self._refuse(instance))
                    if progress is not None:
                        progress(1)
        labels = self.work.labels
        return found if labels is None else [replace(e, label=labels.get(e.key)) for e in found]

    def _explain(self, instances: Sequence[Instance], progress: Progress | None) -> list[Explanation]:
        found: list[Explanation] = []
        started = time.perf_counter()
        for chunk in self._packed(instances):
            ranking = self.method.rank(chunk, self.settings)
            if self.work.search is not None:
                ranking = verify(chunk, ranking, self.work.search)
            if chunk.pack.open is not None:
                ranking = replace(ranking, selected=ranking.selected & chunk.pack.open)
            concluded = conclude(self.method, self.settings, chunk, ranking, started)
            found += concluded if chunk.pack.open is None else map(self._noted, concluded)
            started = time.perf_counter()
            if progress is not None:
                progress(len(chunk.instances))
        return found

    def _is_too_large(self, instance: Instance) -> bool:
        limit = self.work.max_units
        if limit is None or self.work.reduce is not None:
            return False
        return hubs.count_units(instance, edges=self.work.edges, features=self.work.features) > limit

    def _refuse(self, instance: Instance) -> Explanation:
        """The prediction without an explanation: what is too large does not stop what is not."""
        assert self.work.max_units is not None
        started = time.perf_counter()
        (chunk,) = self._packed([instance])
        units = chunk.pack.unit_owner
        nothing = Ranking(units * 0.0, torch.zeros_like(units, dtype=torch.bool), torch.zeros_like(chunk.y))
        (e,) = conclude(self.method, self.settings, chunk, nothing, started)
        return hubs.refused(e, self.work.max_units)

    def _noted(self, e: Explanation) -> Explanation:
        limit = self.work.max_units
        if limit is None or e.num_units <= limit:
            return e
        return replace(e, note=f"{hubs.note(e.num_units, limit)} {e.note}".strip())


def keys_of(source: Graph | Sequence[Data], nodes: Any = None) -> list[int]:
    """The keys to explain: the given nodes, or the given graphs (all, if none are given)."""
    if isinstance(source, Graph):
        return check_nodes(nodes, source.num_nodes)
    return list(range(len(source))) if nodes is None else check_nodes(nodes, len(source))


def labels_of(source: Any, keys: Sequence[int]) -> dict[int, int] | None:
    """The true classes of the keys, where the data has them as whole numbers."""
    if isinstance(source, Data):
        y = getattr(source, "y", None)
        if not isinstance(y, Tensor) or y.is_floating_point() or y.dim() != 1:
            return None
        return {key: int(y[key]) for key in keys}
    values = {key: getattr(source[key], "y", None) for key in keys}
    if not all(isinstance(v, Tensor) and v.numel() == 1 and not v.is_floating_point() for v in values.values()):
        return None
    return {key: int(v) for key, v in values.items() if v is not None}
