"""Methods that are trained first: their network, the one training loop, and the file that keeps what was trained.

A method says what its network is, what a batch costs, and how scores come out of the network. The file is a
safetensors file whose header holds the settings as JSON; reading it runs no code.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import asdict, dataclass, field
from os import PathLike
from pathlib import Path
from typing import Any, TypeVar

import numpy as np
import torch
from torch import Tensor, nn
from torch_geometric.nn import Linear

from cf2.errors import CF2Error, reading, require, require_file, require_path
from cf2.methods.contract import Method, Problem, RankSettings, integer, learning_rate, number
from cf2.methods.relaxation import penalised
from cf2.models.predictor import Predictor
from cf2.sets.tests import Criterion
from cf2.storage import fingerprint, write_bytes
from cf2.units.packs import Pack

FORMAT = 1
MAX_FILE_BYTES = 4 << 30


@dataclass(frozen=True)
class MaskSettings(RankSettings):
    """Settings of networks that are trained to mask edges.

    Selects `k` units, or those above `threshold`. `size` weighs the excess of the mean mask over `budget` in training.
    """

    epochs: int = integer(60)
    lr: float = learning_rate(0.003)
    batch: int = integer(16)
    hidden: int = integer(64)
    size: float = number(1.0)
    budget: float = number(0.2, 0, 1)
    entropy: float = number(0.0)

    def mean_loss(self, losses: Tensor, mask: Tensor, pack: Pack) -> Tensor:
        """The mean of the losses of instances [B], with what the size and the entropy of their masks [units] add."""
        limits = {"size": self.size, "entropy": self.entropy, "budget": self.budget}
        return penalised(losses, mask, pack.units.owner, **limits).mean()


@dataclass(frozen=True, eq=False)
class Trained:
    """What `cf2.fit` made: pass it to `cf2.explain(…, method=…, trained=…)`."""

    method: str
    settings: dict[str, Any]
    tensors: dict[str, Tensor]
    facts: dict[str, Any] = field(default_factory=dict)  # what it was fitted on and what that cost

    def save(self, path: str | Path) -> Path:
        """Write a `.safetensors` file that `cf2.load_trained` reads."""
        from safetensors.torch import save as to_bytes

        path = require_path(path, "a file to write")
        require(path.suffix == ".safetensors", "Expected a path that ends in .safetensors", got=repr(str(path)))
        plain = {"format": FORMAT, "method": self.method, "settings": self.settings, "facts": self.facts}
        tensors = {name: value.detach().cpu().contiguous() for name, value in self.tensors.items()}
        write_bytes(path, to_bytes(tensors, {"cf2": json.dumps(plain), "digest": digest(tensors, plain)}))
        return path

    def merge(self, method: str, given: Mapping[str, Any]) -> dict[str, Any]:
        """The settings of the training, except where others are asked for."""
        require(
            method == self.method,
            f"Expected an explainer that was trained for method {method!r}",
            got=f"one for {self.method!r}",
        )
        choice = {"k", "threshold"}
        dropped = choice if choice & set(given) else set()  # one of them replaces the other
        return {name: value for name, value in self.settings.items() if name not in dropped} | dict(given)


def load_trained(path: str | Path) -> Trained:
    """Read what `Trained.save` wrote; this runs no code, and damaged files are refused."""
    from safetensors import SafetensorError, safe_open

    path = require_path(path, "a file of a trained explainer")
    require_file(path, "a file of a trained explainer", most=MAX_FILE_BYTES)
    try:
        with safe_open(path, framework="pt") as stored:
            about = stored.metadata() or {}
            plain = json.loads(about["cf2"])
            require(plain["format"] == FORMAT, f"Expected {str(path)!r} to have format {FORMAT}", got=plain["format"])
            tensors = {name: stored.get_tensor(name) for name in stored.keys()}  # noqa: SIM118
        method, settings, facts = plain["method"], plain["settings"], plain["facts"]
        good = isinstance(method, str) and isinstance(settings, dict) and isinstance(facts, dict)
        good = good and about.get("digest") in (None, digest(tensors, plain))
    except (SafetensorError, KeyError, TypeError, ValueError, RecursionError, OSError) as error:
        raise CF2Error(
            f"Expected {str(path)!r} to hold a trained explainer", got=f"{type(error).__name__}: {error}"
        ) from error
    require(good, f"Expected {str(path)!r} to be unchanged", got="other contents", do="Restore it.")
    return Trained(method, settings, tensors, facts)


def digest(tensors: Mapping[str, Tensor], about: Mapping[str, Any] = {}) -> str:
    """A SHA-256 of the names, types, shapes and values of tensors, and of what is written beside them."""
    named = [(f"{name} {tensors[name].dtype} {tuple(tensors[name].shape)} ", tensors[name]) for name in sorted(tensors)]
    return fingerprint(json.dumps(about), *(part for pair in named for part in pair))


@dataclass(frozen=True, eq=False)
class Batch:
    """Training instances of one step: packed, their answers, and the states of each node [N, width]."""

    predictor: Predictor
    pack: Pack
    criterion: Criterion
    nodes: Tensor


def batches(problems: Sequence[Problem], size: int) -> list[Batch]:
    """The instances of all problems in batches of at most `size`, embedded once."""
    batched = []
    for problem in problems:
        for rows in torch.split(problem.oracle.rows, size):
            pack = problem.pack.take(rows)
            nodes = problem.predictor.embed(pack).float()  # whatever the model computes with
            batched.append(Batch(problem.predictor, pack, problem.criterion.take(rows), nodes))
    return batched


class Network(nn.Module):
    """What is trained: it reads node states in units of their spread over the training instances."""

    mean: Tensor
    spread: Tensor

    def __init__(self, width: int) -> None:
        super().__init__()
        self.register_buffer("mean", torch.zeros(width))
        self.register_buffer("spread", torch.ones(width))

    def scaled(self, nodes: Tensor) -> Tensor:
        """Node states [N, width] with mean 0 and spread 1."""
        return (nodes - self.mean) / self.spread


class EdgeScorer(Network):
    """A logit per edge unit: w · ReLU(U h_tail + V h_head + T h_target), the mean over the directions of an edge.

    With an `embedding` width, the hidden layer is multiplied by 2σ(C p), for a condition p [B, embedding].
    """

    def __init__(self, width: int, hidden: int, embedding: int | None = None) -> None:
        super().__init__(width)
        # One matrix for each role and node, not one for each edge: there are far more edges than nodes.
        self.tail = nn.Linear(width, hidden)
        self.head = nn.Linear(width, hidden, bias=False)
        self.target = nn.Linear(width, hidden, bias=False)
        if embedding is not None:
            self.condition = nn.Linear(embedding, hidden)
        self.score = nn.Linear(hidden, 1)

    def forward(self, nodes: Tensor, pack: Pack, p: Tensor | None = None) -> Tensor:
        h = self.scaled(nodes)
        tail, head = pack.edge_index
        hidden, of_edge = self.tail(h)[tail] + self.head(h)[head], pack.batch[tail]
        if pack.targets.size(1):
            hidden = hidden + self.target(h[pack.targets]).sum(1)[of_edge]
        hidden = hidden.relu()
        if p is not None:
            hidden = hidden * (2 * self.condition(p).sigmoid())[of_edge]
        return unit_mean(self.score(hidden).squeeze(1), pack)


def moments(rows: Tensor) -> tuple[Tensor, Tensor]:
    """Mean and spread of every column; a constant column has spread 1."""
    spread = rows.std(0, unbiased=False)
    return rows.mean(0), torch.where(spread > 1e-6, spread, 1.0)


NetworkT = TypeVar("NetworkT", bound=Network)


def train(
    method: str,
    batched: Sequence[Batch],
    settings: Any,
    seed: int,
    network: Callable[[int], NetworkT],
    loss: Callable[[NetworkT, int, int], Tensor],
    *,
    passes: int,
    **facts: int,
) -> Trained:
    """The training loop of every method: Adam on the parameters of the network, over batches in random order.

    `network` makes the network from the width of the node states; `loss` says what a batch costs, from the network,
    the position of the batch and the epoch. Each instance takes so many `passes` of the model in all. `removals` count
    as evaluations too; other `facts` are only kept.
    """
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(seed)
        nodes = torch.cat([batch.nodes for batch in batched])
        net = network(nodes.size(1)).to(nodes.device)
        net.mean, net.spread = moments(nodes)
        parameters = list(net.parameters())
        adam = torch.optim.Adam(parameters, lr=settings.lr)
        for epoch in range(settings.epochs):
            for position in torch.randperm(len(batched)).tolist():
                adam.zero_grad()
                torch.autograd.backward(loss(net, position, epoch), inputs=parameters)  # and not those of the model
                nn.utils.clip_grad_norm_(parameters, 1.0)  # a degree near 0 makes gradients explode
                adam.step()
    instances = sum(batch.pack.num_instances for batch in batched)
    evaluations = instances * passes + facts.pop("removals", 0)
    about = {"instances": instances, "evaluations": evaluations, "seed": seed, **facts}
    return Trained(method, asdict(settings), dict(net.state_dict()), about)


def trained_scores(problem: Problem, network: Callable[[int], Network], *given: Tensor) -> Tensor:
    """What the network with the trained weights says of all units [units], from 0 to 1.

    `network` makes it from the width of the node states, which must be that of the training.
    """
    nodes, width = problem.predictor.embed(problem.pack).float(), len(problem.trained.tensors["mean"])
    require(
        nodes.size(1) == width,
        f"Expected the model that the explainer was trained for, with node states of width {width}",
        got=f"states of width {nodes.size(1)}",
    )
    net = network(width)
    net.load_state_dict(problem.trained.tensors)
    with torch.no_grad():
        scores: Tensor = net.eval().to(nodes.device)(nodes, problem.pack, *given).sigmoid()
    return scores


def unit_mean(columns: Tensor, pack: Pack) -> Tensor:
    """A value for each edge column -> the mean over the columns of each unit [units]."""
    governed = pack.units.edges.first >= 0
    units = pack.units.edges.first[governed]
    total = columns.new_zeros(pack.units.count).index_add(0, units, columns[governed])
    return total / torch.bincount(units, minlength=pack.units.count).clamp(min=1)


def drawn(logits: Tensor, temperature: float) -> Tensor:
    """Masks [units] drawn from the concrete distribution of the logits, by torch's own generator."""
    logits = logits.clamp(-10, 10)
    noise = torch.rand(logits.shape).clamp(1e-6, 1 - 1e-6).to(logits.device)
    return ((logits + noise.log() - (-noise).log1p()) / temperature).sigmoid()


class Head:
    """What the model's head reads of every target, after each run of the model: its last embedding.

    That is the input of the first linear layer after the last message passing; where there is none, the row that the
    model returns.
    """

    def __init__(self, pack: Pack) -> None:
        self._targets, self._read = pack.targets, list[Tensor]()
        self._rows = pack.x.size(0) if pack.targets.size(1) else pack.num_instances

    @property
    def raw(self) -> Tensor:
        """The tensor that the head read, in the graph of derivatives."""
        require(
            len(self._read) > 0,
            f"Expected a model with a head that reads {self._rows} rows",
            got="no such head",
            do="Use a method that does not read embeddings.",
        )
        return self._read[0]

    def rows(self, values: Tensor) -> Tensor:
        """Values of the shape of `raw` -> those of each target, [B, width]."""
        flat = values.reshape(values.size(0), -1).float()  # whatever the model computes with
        return flat[self._targets].flatten(1) if self._targets.size(1) else flat

    @property
    def states(self) -> Tensor:
        """The embedding of every target, [B, width]."""
        return self.rows(self.raw)

    def slopes(self, values: Tensor) -> Tensor:
        """The gradient of the sum of `values` with respect to the embedding of every target, [B, width]."""
        slope = torch.autograd.grad(values.sum(), self.raw, allow_unused=True)[0] if values.requires_grad else None
        return self.rows(torch.zeros_like(self.raw) if slope is None else slope)

    def forget(self, *_: Any) -> None:
        self._read.clear()

    def listen(self, module: nn.Module, given: tuple[Any, ...], out: Any = None) -> None:
        value = given[0] if out is None and given else out[0] if isinstance(out, tuple) else out
        if not self._read and isinstance(value, Tensor) and value.dim() and value.size(0) == self._rows:
            self._read.append(value)


@contextmanager
def read_head(predictor: Predictor, pack: Pack) -> Iterator[Head]:
    """Listen to what the head reads whenever the model is run on the pack inside."""
    head = Head(pack)
    with ExitStack() as stack:
        stack.callback(predictor.model.register_forward_pre_hook(head.forget).remove)
        for module in predictor.model.modules():
            if isinstance(module, nn.Linear | Linear):
                stack.callback(module.register_forward_pre_hook(head.listen).remove)
        for layer in predictor.layers:  # what came before the last of them is no head
            stack.callback(layer.register_forward_hook(head.forget).remove)
        stack.callback(predictor.model.register_forward_hook(head.listen).remove)
        yield head


def check_needs(method: Method, given: Any) -> Any:
    """`trained` as the method reads it: None, a trained explainer, or the true edges [n, 2] by key."""
    if given is None:
        return None
    name, got = repr(method.name), f"an object of type {type(given).__name__}"
    require(method.needs != "nothing", f"Expected no `trained` for method {name}, which needs no training", got=got)
    if method.needs == "training":
        cure = f"Train one with cf2.fit(model, data, method={name}, …)."
        cure = "Read the file with cf2.load_trained." if isinstance(given, str | PathLike) else cure
        require(isinstance(given, Trained), "Expected `trained` to be a result of cf2.fit", got=got, do=cure)
        return given
    cure = "Pass trained={key: pairs of node ids}."
    require(isinstance(given, Mapping), "Expected `trained` to hold the true edges by key", got=got, do=cure)
    return {
        key: {kind: _pairs(pairs, key) for kind, pairs in edges.items()}  # by the type of the edges
        if isinstance(edges, Mapping)
        else _pairs(edges, key)
        for key, edges in given.items()
    }


def _pairs(given: Any, key: object) -> np.ndarray:
    expected = f"Expected the true edges of {key} in `trained` to be pairs of node ids, [n, 2]"
    with reading(given, expected):  # which may be a ragged list, or a tensor without values
        pairs = np.asarray(given)
    if not pairs.size:
        return np.zeros((0, 2), dtype=np.int64)
    good = pairs.dtype.kind in "iu" and pairs.shape[-1:] == (2,)
    require(good, expected, got=f"shape {pairs.shape} and dtype {pairs.dtype}")
    return pairs.astype(np.int64).reshape(-1, 2)
