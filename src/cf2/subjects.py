"""What is explained, by name: a model with its data, from a data set of ours or from the user's own function.

>>> subject = from_dataset("ba-shapes")
>>> subject.task, len(subject.graphs), subject.class_names[0]
('node', 1, 'base')
"""

from __future__ import annotations

import hashlib
import importlib
import os
import sys
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from functools import cached_property
from pathlib import Path
from typing import Any, Literal

import torch
from torch import Tensor, nn
from torch_geometric.data import Data

from cf2 import datasets, training
from cf2.datasets import Dataset
from cf2.errors import CF2Error, require
from cf2.instances import Graph, check_nodes
from cf2.work import Work, labels_of

SHIPPED = "shipped"
RETURNS = "(model, data), (model, graphs) or a dict with `model`, `data`, and perhaps `nodes` and `class_names`"


@dataclass(frozen=True, eq=False)
class Subject:
    """A model and the graphs it is asked about; `restore(description)` makes the same one again."""

    model: nn.Module
    task: Literal["node", "graph"]
    graphs: Sequence[Data]
    class_names: tuple[str, ...]
    dataset: Dataset | None = None
    description: dict[str, Any] = field(default_factory=dict)
    model_line: str = ""
    nodes: tuple[int, ...] | None = None  # what the user's function asked to have explained
    test_ids: Tensor | None = None

    @cached_property
    def source(self) -> Graph | Sequence[Data]:
        """The data as `Work` takes it: one indexed Graph for nodes, the graphs themselves otherwise."""
        return Graph(self.graphs[0]) if self.task == "node" else self.graphs

    def __len__(self) -> int:
        """How many keys there are: nodes, or graphs."""
        return int(self.graphs[0].num_nodes or 0) if self.task == "node" else len(self.graphs)

    def keys(self) -> list[int]:
        """The keys to explain when none are given: the paper's for a data set, else the test set or all."""
        if self.nodes is not None:
            return list(self.nodes)
        if self.dataset is not None and self.test_ids is not None:
            predictions = training.predict(self.model, self.dataset)
            chosen = datasets.instances_to_explain(self.dataset, self.test_ids, predictions)
            return [int(key) for key in chosen]
        mask = getattr(self.graphs[0], "test_mask", None) if self.task == "node" else None
        if isinstance(mask, Tensor) and mask.dtype == torch.bool and mask.dim() == 1 and bool(mask.any()):
            return [int(key) for key in mask.nonzero().flatten()]
        return list(range(len(self)))

    def check_keys(self, keys: Any) -> list[int]:
        """The keys as whole numbers, each one a node or graph that exists."""
        return check_nodes(keys, len(self))

    def truth(self, key: int) -> Tensor | None:
        """The true explanation as a bool per column of the instance's `edge_index`; None where unknown."""
        if self.dataset is not None:
            return self.dataset.truth(key)
        known = getattr(self.graphs[key], "truth", None) if self.task == "graph" else None
        usable = isinstance(known, Tensor) and known.dtype == torch.bool and known.dim() == 1
        return known if usable else None

    def work(self, keys: Sequence[int], *, method: str = "cf2", **options: Any) -> Work:
        """The work of explaining the keys; options are fields of `Work`, such as `settings` and `seed`."""
        labels = labels_of(self.graphs[0] if self.task == "node" else self.graphs, keys)
        return Work(self.model, self.source, method=method, labels=labels, **options)

    def context(self, keys: Sequence[int]) -> dict[str, Any]:
        """What a reader of the explanations needs beside them, ready for JSON."""
        found: dict[str, Any] = {"class_names": list(self.class_names), "model": self.model_line}
        found["dataset"] = self.dataset.name if self.dataset else self.description.get("function", "")
        atoms = self.dataset.atoms if self.dataset else None
        if atoms:
            found["atoms"] = list(atoms)
            found["graphs"] = {str(key): self._molecule(key, atoms) for key in keys}
        truth = {str(key): self._pairs(key) for key in keys}
        known = {key: pairs for key, pairs in truth.items() if pairs is not None}
        if known:
            found["truth"] = known
        return found

    def _molecule(self, key: int, atoms: Sequence[str]) -> dict[str, Any]:
        """Element symbols by node, and the orders of the bonds where the data has them."""
        graph = self.graphs[key]
        found: dict[str, Any] = {"labels": [atoms[place] for place in graph.x.argmax(1).tolist()]}
        if "bond" in graph:
            found["bonds"] = torch.cat([graph.edge_index, graph.bond[None]]).t().tolist()
        return found

    def _pairs(self, key: int) -> list[list[int]] | None:
        mask = self.truth(key)
        if mask is None:
            return None
        pairs: list[list[int]] = self.graphs[0 if self.task == "node" else key].edge_index[:, mask].t().tolist()
        return pairs


def from_dataset(name: str, *, checkpoint: str | Path | None = None, root: str | Path | None = None) -> Subject:
    """A data set of ours with the model that ships for it, or with the one saved at the path `checkpoint`."""
    model, about = training.shipped(name) if checkpoint is None else training.load(checkpoint)
    dataset = datasets.load(name, root=root, seed=about.dataset_seed)
    differences = about.mismatches(dataset)
    if differences:
        raise CF2Error(
            f"Expected a model that was trained on this {name!r}",
            got="; ".join(differences),
            do=f"Train one with: cf2 train {name}",
        )
    place = SHIPPED if checkpoint is None else str(Path(checkpoint).expanduser().resolve())
    description = {
        "kind": "dataset",
        "dataset": name,
        "checkpoint": place,
        "data": about.fingerprint,
        "weights": fingerprint(model.state_dict().values()),
    }
    recipe = about.recipe
    line = f"{recipe.arch}, {recipe.layers} layers of {recipe.hidden}, test accuracy {about.test_accuracy:.3f}"
    task: Literal["node", "graph"] = "node" if dataset.task == "node" else "graph"
    return Subject(
        model=model,
        task=task,
        graphs=dataset.graphs,
        class_names=tuple(dataset.class_names),
        dataset=dataset,
        description=description,
        model_line=line,
        test_ids=datasets.split(dataset, about.split["seed"])[1],
    )


def from_function(spec: str) -> Subject:
    """The model and data that the user's `module:function` returns. This runs the user's code.

    The module is looked for in the current directory first. The function takes no arguments and returns
    `(model, data)`, `(model, graphs)`, or a dict with `model`, `data` and, if it likes, `nodes` (the keys to
    explain) and `class_names`.
    """
    given = _call(spec)
    model, data = given["model"], given["data"]
    single = isinstance(data, Data)
    graphs: Sequence[Data] = [data] if single else data
    tensors = [value for graph in graphs for value in (graph.x, graph.edge_index) if isinstance(value, Tensor)]
    description = {
        "kind": "function",
        "function": spec,
        "data": fingerprint(tensors),
        "weights": fingerprint(model.state_dict().values()),
    }
    subject = Subject(
        model=model,
        task="node" if single else "graph",
        graphs=graphs,
        class_names=tuple(str(name) for name in given.get("class_names") or ()),
        description=description,
        model_line=f"{type(model).__name__} from {spec}",
    )
    nodes = given.get("nodes")
    return subject if nodes is None else replace(subject, nodes=tuple(subject.check_keys(nodes)))


def restore(description: Mapping[str, Any], *, root: str | Path | None = None) -> Subject:
    """The subject that a description was made of, or an error that says what has changed since."""
    kind = description.get("kind")
    if kind == "dataset":
        place = description["checkpoint"]
        checkpoint = None if place == SHIPPED else place
        subject = from_dataset(description["dataset"], checkpoint=checkpoint, root=root)
    elif kind == "function":
        subject = from_function(description["function"])
    else:
        raise CF2Error("Expected the description of a data set or of a function", got=repr(kind))
    for name, what in (("weights", "weights of the model"), ("data", "data")):
        require(
            description.get(name) == subject.description.get(name),
            f"Expected the same {what} as when the run was made",
            got=f"other {what}",
            do="Restore the old ones, or start a new run.",
        )
    return subject


def fingerprint(tensors: Any) -> str:
    """A short SHA-256 over the shapes and bytes of tensors."""
    digest = hashlib.sha256()
    for tensor in tensors:
        plain = tensor.detach().cpu().contiguous()
        digest.update(f"{tuple(plain.shape)} {plain.dtype}".encode())
        digest.update(plain.reshape(-1).view(torch.uint8).numpy().tobytes() if plain.numel() else b"")
    return digest.hexdigest()[:32]


def _call(spec: str) -> dict[str, Any]:
    module_name, colon, function_name = spec.partition(":")
    require(
        bool(colon and module_name and function_name),
        "Expected a function as MODULE:FUNCTION, for example mymodel:load",
        got=repr(spec),
    )
    with _current_directory_first():
        try:
            module = importlib.import_module(module_name)
        except ModuleNotFoundError as error:
            missing = error.name == module_name or (error.name or "") == module_name.partition(".")[0]
            what = "no such module" if missing else f"a module that imports {error.name!r}, which is not installed"
            raise CF2Error(
                f"Expected to import {module_name!r} from {os.getcwd()} or from what is installed", got=what
            ) from error
        except Exception as error:
            raise CF2Error(f"Expected to import {module_name!r}", got=f"{type(error).__name__}: {error}") from error
        function = getattr(module, function_name, None)
        require(
            callable(function),
            f"Expected a function {function_name!r} in module {module_name!r}",
            got="none" if function is None else type(function).__name__,
        )
        assert function is not None
        try:
            returned = function()
        except Exception as error:
            raise CF2Error(
                f"Expected {spec} to return without an error", got=f"{type(error).__name__}: {error}"
            ) from error
    return _unfold(spec, returned)


def _unfold(spec: str, returned: Any) -> dict[str, Any]:
    """Whatever the function returned as a checked dict."""
    if isinstance(returned, Mapping):
        given = dict(returned)
        unknown = set(given) - {"model", "data", "nodes", "class_names"}
        require(not unknown, f"Expected {spec} to return {RETURNS}", got=f"the entry {sorted(map(str, unknown))}")
    elif isinstance(returned, tuple | list) and len(returned) == 2:
        given = {"model": returned[0], "data": returned[1]}
    else:
        raise CF2Error(f"Expected {spec} to return {RETURNS}", got=type(returned).__name__)
    model, data = given.get("model"), given.get("data")
    require(
        isinstance(model, nn.Module),
        f"Expected {spec} to return a torch model first",
        got=type(model).__name__,
    )
    listed = hasattr(data, "__len__") and hasattr(data, "__getitem__") and not isinstance(data, Data)
    graphs = listed and len(data) > 0 and all(isinstance(data[i], Data) for i in range(len(data)))  # type: ignore[arg-type, index]
    require(
        isinstance(data, Data) or bool(graphs),
        f"Expected {spec} to return a Data object, or a list or data set of them, beside the model",
        got=f"an empty {type(data).__name__}" if listed and not len(data) else type(data).__name__,  # type: ignore[arg-type]
    )
    return given


@contextmanager
def _current_directory_first() -> Iterator[None]:
    here = os.getcwd()
    sys.path.insert(0, here)
    try:
        importlib.invalidate_caches()
        yield
    finally:
        sys.path.remove(here)
