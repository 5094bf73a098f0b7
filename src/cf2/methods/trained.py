"""A fitted explainer: weights, the settings they were fitted with, and one file for both.

The file is a safetensors file whose header holds the rest as JSON; reading it runs no code.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from os import PathLike
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn
from torch_geometric.nn import Linear

from cf2.errors import CF2Error, require, require_file, require_number
from cf2.methods.contract import Method, Problem, check_choice
from cf2.methods.relaxation import entropy, mean_within
from cf2.models.predictor import Predictor
from cf2.sets.tests import Criterion
from cf2.storage import write_bytes
from cf2.units.packs import Pack

FORMAT = 1
MOST_BYTES = 4 << 30  # of a file of weights


@dataclass(frozen=True)
class MaskSettings:
    """What every network that is trained to mask edges is told.

    `k` units or those above `threshold` are chosen. `size` weighs what the mean mask exceeds `budget` by in training.
    """

    k: int | None = None
    threshold: float | None = None
    epochs: int = 60
    lr: float = 0.003
    batch: int = 16
    hidden: int = 64
    size: float = 1.0
    budget: float = 0.2
    entropy: float = 0.0

    def __post_init__(self) -> None:
        check_choice(self.k, self.threshold)
        for name in ("epochs", "batch", "hidden"):
            require_number(name, getattr(self, name), 1, integer=True)
        require_number("lr", self.lr, 1e-6, 10)
        for name in ("size", "entropy"):
            require_number(name, getattr(self, name), 0)
        require_number("budget", self.budget, 0, 1)

    def penalised(self, each: Tensor, mask: Tensor, pack: Pack) -> Tensor:
        """The losses of instances [B] with what the size and the entropy of their masks [units] add."""
        owner, count = pack.units.owner, pack.num_instances
        each = each + self.size * (mean_within(mask, owner, count) - self.budget).relu()
        return each + self.entropy * mean_within(entropy(mask), owner, count)


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

        path = Path(path)
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

    def restore(self, network: nn.Module) -> nn.Module:
        """The network with the trained weights in it."""
        network.load_state_dict(self.tensors)
        return network.eval()


def load_trained(path: str | Path) -> Trained:
    """Read what `Trained.save` wrote; this runs no code, and what is not as it was written is refused."""
    from safetensors import SafetensorError, safe_open

    path = Path(path)
    require_file(path, "a file of a trained explainer", most=MOST_BYTES)
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
    require(good, f"Expected {str(path)!r} to hold what was written to it", got="other contents", do="Get it again.")
    return Trained(method, settings, tensors, facts)


def digest(tensors: Mapping[str, Tensor], about: Mapping[str, Any] = {}) -> str:
    """A SHA-256 of the names, types, shapes and values of tensors, and of what is written beside them."""
    made = hashlib.sha256(json.dumps(about).encode())
    for name in sorted(tensors):
        tensor = tensors[name].contiguous()
        made.update(f"{name} {tensor.dtype} {tuple(tensor.shape)} ".encode())
        made.update(tensor.reshape(-1).view(torch.uint8).numpy().tobytes() if tensor.numel() else b"")
    return made.hexdigest()


@dataclass(frozen=True, eq=False)
class Batch:
    """Training instances of one step: packed, their answers, and the states of each node [N, width]."""

    predictor: Predictor
    pack: Pack
    criterion: Criterion
    nodes: Tensor


def batches(problems: Sequence[Problem], size: int) -> list[Batch]:
    """The instances of all problems in batches of at most `size`, embedded once."""
    made = []
    for problem in problems:
        for rows in torch.split(torch.arange(problem.num_instances, device=problem.outputs.device), size):
            pack = problem.pack.take(rows)
            made.append(Batch(problem.predictor, pack, problem.criterion.take(rows), node_states(problem, pack)))
    return made


def node_states(problem: Problem, pack: Pack) -> Tensor:
    """The states of each node [N, width] in single precision, whatever the model computes with."""
    return problem.predictor.embed(pack).float()


def moments(made: Sequence[Batch]) -> tuple[Tensor, Tensor]:
    """Mean and spread of every node input over all batches; a constant input has spread 1."""
    nodes = torch.cat([batch.nodes for batch in made])
    spread = nodes.std(0, unbiased=False)
    return nodes.mean(0), torch.where(spread > 1e-6, spread, 1.0)


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


def trained_for(problem: Problem, width: int) -> Tensor:
    """The node inputs of instances to be explained, if they are as wide as those of the training."""
    nodes = node_states(problem, problem.pack)
    require(
        nodes.size(1) == width,
        f"Expected the model that the explainer was trained for, with node states of width {width}",
        got=f"states of width {nodes.size(1)}",
    )
    return nodes


class Head:
    """What the model's head reads of every target, after each run of the model: its last embedding.

    That is the input of the first linear layer after the last message passing; where there is none, the row that the
    model returns.
    """

    def __init__(self, pack: Pack) -> None:
        self._targets = pack.targets
        self._rows = pack.x.size(0) if pack.targets.size(1) else pack.num_instances
        self._read: list[Tensor] = []

    @property
    def raw(self) -> Tensor:
        """The tensor that the head read, in the graph of derivatives."""
        require(
            len(self._read) > 0,
            f"Expected a model whose head reads one row each, of {self._rows}",
            got="none that does",
            do="Use a method that does not look at the model's embeddings.",
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
    require(method.needs != "nothing", f"Expected no `trained` for method {name}, which needs none", got=got)
    if method.needs == "training":
        cure = f"Train one with cf2.fit(model, data, method={name}, …)."
        cure = "Read the file with cf2.load_trained." if isinstance(given, str | PathLike) else cure
        require(isinstance(given, Trained), "Expected `trained` to be what cf2.fit made", got=got, do=cure)
        return given
    cure = "Pass trained={key: pairs of node ids}."
    require(isinstance(given, Mapping), "Expected `trained` to hold the true edges by key", got=got, do=cure)
    return {key: _true(pairs, key) for key, pairs in given.items()}


def _true(given: Any, key: object) -> Any:
    """Pairs, or pairs by the type of the edges."""
    if isinstance(given, Mapping):
        return {kind: _pairs(pairs, key) for kind, pairs in given.items()}
    return _pairs(given, key)


def _pairs(given: Any, key: object) -> np.ndarray:
    expected = f"Expected the true edges of {key} in `trained` to be pairs of node ids, [n, 2]"
    try:
        pairs = np.asarray(given)
    except Exception as error:  # of a ragged list, or a tensor that has no values
        raise CF2Error(expected, got=f"an object of type {type(given).__name__}") from error
    if not pairs.size:
        return np.zeros((0, 2), dtype=np.int64)
    good = pairs.dtype.kind in "iu" and pairs.shape[-1:] == (2,)
    require(good, expected, got=f"shape {pairs.shape} and dtype {pairs.dtype}")
    return pairs.astype(np.int64).reshape(-1, 2)
