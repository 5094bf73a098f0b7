"""Where a model and its data come from: a data set of ours by name, the user's own function, or Chemprop's files.

>>> source = from_dataset("ba-shapes")
>>> source.level, len(source.graphs), source.class_names[0]
('node', 1, 'base')
"""

from __future__ import annotations

import importlib
import logging
import os
import sys
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import replace
from inspect import isfunction
from pathlib import Path
from typing import Any

import pandas
import torch
from torch import Tensor, nn
from torch_geometric.data import Data, HeteroData

from cf2 import storage
from cf2.errors import CF2Error, own_line, require, require_file, unknown_name
from cf2.graphs.targets import check_ids, check_pairs
from cf2.models import chemprop
from cf2.options import LARGEST, Key
from cf2.results.names import Names
from cf2.runs.source import ModelAndData, values_of
from cf2.samples import registry as datasets
from cf2.samples import training
from cf2.samples.datasets import OUTPUTS
from cf2.samples.storage import data_root

log = logging.getLogger("cf2")

SHIPPED = "shipped"
MAX_TABLE_BYTES = 2**30  # of a CSV file of molecules
SEE_MORE = "Add --debug (CF2_DEBUG=1) to see the full traceback."
NAMED = ("class_names", "node_names", "feature_names", "smiles", "atoms")  # what may be called something
RETURNS = (
    "(model, data), (model, graphs) or a dict with `model`, `data`, and perhaps `nodes` or `pairs`, `call`, "
    + ", ".join(f"`{name}`" for name in NAMED[:-1])
    + f" and `{NAMED[-1]}`"
)


def from_dataset(name: str, *, checkpoint: str | Path | None = None, root: str | Path | None = None) -> ModelAndData:
    """A named data set with its shipped model, or with the model saved at the path `checkpoint`."""
    model, about = training.shipped(name) if checkpoint is None else training.load(checkpoint)
    dataset = datasets.load(name, root=root, seed=about.dataset_seed)
    differences = about.mismatches(dataset)
    require(
        not differences,
        f"Expected a model that was trained on this {name!r}",
        got="; ".join(differences),
        do=f"Train one with: cf2 train {name}",
    )
    place = SHIPPED if checkpoint is None else str(checkpoint)
    if checkpoint is not None and place not in training.shipped_names():
        place = os.path.realpath(Path(place).expanduser())
    files = {"checkpoint": place, "root": None if root is None else os.path.realpath(data_root(root))}
    train_ids, test_ids = datasets.split(dataset, about.split["seed"])

    def explained(ids: Tensor) -> list[Key]:
        """The paper's rule; it takes a pass over all the data."""
        return dataset.keys(datasets.instances_to_explain(dataset, ids, training.predict(model, dataset)))

    recipe = about.recipe
    return ModelAndData(
        model=model,
        level=dataset.task,
        graphs=dataset.graphs,
        class_names=tuple(dataset.class_names),
        description=_description("dataset", name, model, about.fingerprint, **files),
        model_line=f"{recipe.arch}, {recipe.layers} layers of {recipe.hidden}, "
        f"test {about.metric} {about.test_accuracy:.3f}",
        name=dataset.name,
        atoms=dataset.atoms,
        truth=dataset.truth,
        keys_to_explain=lambda: explained(test_ids),
        keys_to_train_on=lambda: explained(train_ids.sort().values),
        output=OUTPUTS[dataset.output],
        node_type=dataset.node_type,
        edge_type=dataset.edge_type,
        truths=dataset.truths,
        labels={} if dataset.pairs is None else dict(zip(dataset.keys(range(len(dataset))), dataset.labels.tolist())),
    )


def from_function(spec: str) -> ModelAndData:
    """Load the model and data that the user's `module:function` returns. This runs the user's code.

    The module is searched in the current directory first. The function takes no arguments and returns
    `(model, data)`, `(model, graphs)`, or a dict with `model`, `data` and, optionally, `nodes` or `pairs` (the keys to
    explain), `call` (how the model is called) and the names that `cf2.explain` takes: `class_names`, `node_names`,
    `feature_names`, `smiles` and `atoms`.
    """
    given = _returned_by(spec)
    model, data = given["model"], given["data"]
    single = isinstance(data, Data | HeteroData)
    graphs: Sequence[Data | HeteroData] = [data] if single else data

    def truth(key: Key) -> Tensor | None:
        mask = None if single else getattr(graphs[key], "truth", None)  # type: ignore[index]
        return mask if isinstance(mask, Tensor) and mask.dtype == torch.bool and mask.dim() == 1 else None

    names = Names(**{name: given.get(name) for name in NAMED})
    source = ModelAndData(
        model=model,
        level="graph" if not single else "node" if given.get("pairs") is None else "pair",
        graphs=graphs,
        class_names=names.classes(),
        names=names,
        atoms=tuple(names.atoms) if names.atoms else None,
        description=_description("function", spec, model, _digest(graphs)),
        model_line=f"{type(model).__name__} from {spec}",
        name=spec,
        truth=truth,
        call=given.get("call"),
    )
    named = given.get("nodes") if given.get("pairs") is None else given["pairs"]
    if named is None:
        return source
    if isinstance(data, HeteroData):  # the types that are explained are said by the request, which checks them
        pairs = given.get("pairs") is not None
        keys = check_pairs(named, (LARGEST, LARGEST)) if pairs else check_ids(named, LARGEST)
    else:
        keys = source.targets().check(named)
    return replace(source, keys_to_explain=lambda: keys)


def from_chemprop(checkpoint: str | Path, table: str | Path, target: Any = None) -> tuple[ModelAndData, Any]:
    """The Chemprop model in a checkpoint with the molecules in a CSV file, and the number of the task to explain.

    The SMILES are in the column `smiles`, or else in the first one. No code of either file is run.
    """
    model, tasks = chemprop.load(checkpoint)
    require_file(table, "a CSV file of molecules", most=MAX_TABLE_BYTES)
    try:
        frame = pandas.read_csv(table, dtype=str, keep_default_na=False)
    except Exception as error:  # of a file that is no text, or no table
        raise CF2Error("Expected a CSV file of molecules", got=f"{str(table)!r}, and {error}") from error
    named = [name for name in frame.columns if name.lower() == "smiles"]
    molecules = chemprop.Molecules(
        model, chemprop.featurise(model, list(frame[(named or list(frame.columns))[0]])), tasks
    )
    asked = molecules.options({} if target is None else {"target": target})
    class_names = tuple(asked.get("class_names") or ())
    files = {"molecules": os.path.realpath(table), "target": target}
    several = f", mean of {len(model.members)} models" if isinstance(model, chemprop.Ensemble) else ""
    source = ModelAndData(
        model=model,
        level="graph",
        graphs=molecules.graphs,
        class_names=class_names,
        names=Names(class_names or None),
        description=_description("chemprop", os.path.realpath(checkpoint), model, _digest(molecules.graphs), **files),
        model_line=f"Chemprop, {type(model.message_passing).__name__}, depth {model.message_passing.depth}{several}",
        name=Path(table).stem,
        output=asked["output"],
        call=asked.get("call"),
    )
    return source, source.names.number(asked.get("target"))


def _description(kind: str, name: str, model: nn.Module, data: str, **more: Any) -> dict[str, Any]:
    """The JSON by which `restore` finds a source again, with digests of its data and of its weights."""
    weights = fingerprint(model.state_dict().values())
    return {"kind": kind, kind: name, **more, "data": data, "weights": weights}


def _digest(graphs: Iterable[Data | HeteroData]) -> str:
    return fingerprint(value for graph in graphs for _, value in sorted(values_of(graph).items()))


def restore(description: Mapping[str, Any], *, root: str | Path | None = None, trust: bool = False) -> ModelAndData:
    """The model and data that a description was made of, or an error that says what has changed since.

    A description may come from a stranger. For a data set of ours, weights, JSON and raw files are read, and none of
    that runs code. A function is only run with `trust`. `root` replaces the place of the raw data in the description.
    """
    kind, name = _kind_and_name(description)
    if kind == "function":
        require(
            trust,
            f"Expected permission to run {name}, the function of the run",
            got="none",
            do=f"Read it first; if you trust it, add --trust or --data {name} (in Python: trust=True).",
        )
    if kind == "chemprop":
        table, target = description.get("molecules"), description.get("target")
        require(isinstance(table, str), "Expected the path of the molecules in the description", got=repr(table)[:80])
        log.info("The run names files outside of its directory, which are read: %s, %s", name, table)
        source, _ = from_chemprop(name, str(table), target)
    else:
        source = from_function(name) if kind == "function" else _from_files(name, description, root)
    for part, what in (("weights", "weights of the model"), ("data", "data")):
        require(
            description.get(part) == source.description.get(part),
            f"Expected the same {what} as in the run",
            got=f"other {what}",
            do="Restore the old ones, or start a new run.",
        )
    return source


def _from_files(name: str, description: Mapping[str, Any], root: str | Path | None) -> ModelAndData:
    """A data set of ours, with the files that a description names; which those are is said in the log."""
    checkpoint_path, stored = description.get("checkpoint"), description.get("root")
    for path in (checkpoint_path, stored):
        require(path is None or isinstance(path, str), "Expected a path in the description", got=repr(path))
    checkpoint = None if checkpoint_path == SHIPPED else checkpoint_path
    outside = [path for path in (checkpoint, stored if root is None else None) if path]
    if outside:
        log.info("The run names files outside of its directory, which are read: %s", ", ".join(outside))
    return from_dataset(name, checkpoint=checkpoint, root=root or stored)


def trusted(description: Any, *, trust: bool = False, data: str | None = None) -> bool:
    """Whether a user agrees to run the function of a description: by saying so, or by naming the same one again."""
    if data is None:
        return trust
    kind, name = _kind_and_name(description)
    require(
        kind == "function" and name == data,
        f"Expected --data to name the source of the run, the {kind.replace('dataset', 'data set')} {name}",
        got=repr(data),
    )
    return True


def _kind_and_name(description: Any) -> tuple[str, str]:
    kind = description.get("kind") if isinstance(description, Mapping) else None
    expected = "Expected the description of a data set, of a function or of a Chemprop model"
    require(kind in ("dataset", "function", "chemprop"), expected, got=repr(kind))
    name = description.get(kind)
    require(isinstance(name, str), f"Expected the name of the {kind} in the description", got=repr(name))
    return str(kind), str(name)


def fingerprint(values: Iterable[Any]) -> str:
    """A short SHA-256 over the shapes and bytes of those values that are tensors."""
    parts: list[Any] = []
    for value in values:
        if nn.parameter.is_lazy(value):
            raise CF2Error(
                "Expected a model whose weights have their shapes",
                got="lazy layers that have not seen an input yet",
                do="Run the model once on your data before you return it.",
            )
        if isinstance(value, Tensor):
            parts += [f"{tuple(value.shape)} {value.dtype}", value]
    return storage.fingerprint(*parts, digits=32)


def _returned_by(spec: str) -> dict[str, Any]:
    module_name, function_name = _module_and_function(spec)
    with _current_directory_first():
        try:
            module = importlib.import_module(module_name)
        except ModuleNotFoundError as error:
            missing = error.name == module_name or (error.name or "") == module_name.partition(".")[0]
            what = "no such module" if missing else f"a module that imports {error.name!r}, which is not installed"
            raise CF2Error(
                f"Expected to import {module_name!r} from {os.getcwd()} or from what is installed", got=what
            ) from error
        except (Exception, SystemExit) as error:
            raise CF2Error(f"Expected to import {module_name!r}", got=_error_line(error), do=SEE_MORE) from error
        function = getattr(module, function_name, None)
        if function is None:
            there = [name for name, value in vars(module).items() if isfunction(value) and not name.startswith("_")]
            raise unknown_name(f"the function of module {module_name!r}", function_name, there or ["a function"])
        expected = f"Expected a function {function_name!r} in module {module_name!r}"
        require(callable(function), expected, got=f"an object of type {type(function).__name__}")
        try:
            returned = function()
        except (Exception, SystemExit) as error:
            raise CF2Error(
                f"Expected {spec} to return without an error", got=_error_line(error), do=SEE_MORE
            ) from error
    return _checked_return(spec, returned)


def _module_and_function(spec: str) -> tuple[str, str]:
    """The names of a module and of a function in it."""
    module, _, function = spec.partition(":")
    named = all(part.isidentifier() for part in (*module.split("."), function)) and not module.endswith(".py")
    folder, name = os.path.split(module.removesuffix(".py"))
    require(
        named,
        "Expected a function as MODULE:FUNCTION, for example mymodel:load",
        got=repr(spec),
        do=f"Name the module, not its file, and a function in it: {name or 'mymodel'}:{function or 'load'}"
        + (f", in the directory {folder}." if folder else "."),
    )
    return module, function


def _error_line(error: BaseException) -> str:
    """An error of the user's code, with the place where it happened."""
    line = own_line(error)
    return f"{type(error).__name__}: {error}".rstrip(".: ") + (f" ({line})" if line else "")


def _checked_return(spec: str, returned: Any) -> dict[str, Any]:
    """Whatever the function returned as a checked dict."""
    if isinstance(returned, Mapping):
        given = dict(returned)
        unknown = set(given) - {"model", "data", "nodes", "pairs", "call", *NAMED}
        require(not unknown, f"Expected {spec} to return {RETURNS}", got=f"the entry {sorted(map(str, unknown))}")
    elif isinstance(returned, tuple | list) and len(returned) == 2:
        given = {"model": returned[0], "data": returned[1]}
    else:
        raise CF2Error(f"Expected {spec} to return {RETURNS}", got=type(returned).__name__)
    model, data = given.get("model"), given.get("data")
    require(isinstance(model, nn.Module), f"Expected {spec} to return a torch model first", got=type(model).__name__)
    listed = hasattr(data, "__len__") and hasattr(data, "__getitem__") and not isinstance(data, Data | HeteroData)
    graphs = listed and len(data) > 0 and all(isinstance(data[i], Data | HeteroData) for i in range(len(data)))  # type: ignore[arg-type, index]
    require(
        isinstance(data, Data | HeteroData) or bool(graphs),
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
