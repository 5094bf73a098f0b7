"""Chemprop models (2.1 or later): molecules as graphs with the features that the model reads, and how it is called.

Chemprop passes messages along directed bonds and needs to know the opposite of each. That is worked out from the bonds
that are left, so it holds in every pack and whatever was removed. Chemprop is imported when a model of it is passed.
"""

from __future__ import annotations

import copy
import io
import os
import pickle
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager, nullcontext
from dataclasses import dataclass
from enum import Enum
from functools import partial
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import torch
from torch import Tensor
from torch_geometric.data import Data

from cf2.errors import CF2Error, extra, require, require_file
from cf2.models.adapters import Adapter, Answer, Inputs, OneTask, is_mpnn
from cf2.options import Output
from cf2.units.molecules import edited_molecule, smiles_of

MAX_BYTES = 2**33  # of a checkpoint
ROW = "graph_row"  # the place of a molecule among those that were passed [1, 1]
LABELS = ("multilabel_probabilities", "probabilities")
ATOM_DESCRIPTORS, DESCRIPTORS = "node_V_d", "graph_X_d"  # Chemprop's V_d [atoms, d] and X_d [1, d] in a graph
# What Chemprop's checkpoints are made of: layers, metrics and choices of these modules, and these plain things.
CHECKPOINT_MODULES = ("chemprop.nn.", "torchmetrics.classification.", "torchmetrics.regression.", "torch.nn.modules.")
CHECKPOINT_NAMES = {
    "__builtin__.set",  # as Python 2 and the pickles of torch name it
    "collections.OrderedDict",
    "lightning.fabric.utilities.data.AttributeDict",
    "torch._utils._rebuild_parameter",
    "torch._utils._rebuild_tensor_v2",
    "torch.device",
    "torchmetrics.metric.jit_distributed_available",
    *(f"torch.{kind}Storage" for kind in ("Bool", "Byte", "Double", "Float", "Half", "Int", "Long")),
    *(f"torch.{kind}" for kind in ("bool", "float16", "float32", "float64", "int32", "int64", "uint8")),
    *(f"torchmetrics.utilities.data.dim_zero_{name}" for name in ("cat", "max", "mean", "min", "sum")),
}
FORMS: dict[str, Output] = {  # what a Chemprop predictor returns, by the name of its class or of one it is made from
    "BinaryClassificationFFNBase": "multilabel_probabilities",
    "MulticlassClassificationFFN": "probabilities",
    "RegressionFFN": "regression",
}


def output_of(model: Any) -> Output:
    """What a Chemprop model returns: labels, classes or numbers."""
    known = [FORMS[kind.__name__] for kind in type(model.predictor).__mro__ if kind.__name__ in FORMS]
    name = type(model.predictor).__name__
    require(bool(known), "Expected a Chemprop model for classification, multiclass or regression", got=name)
    return known[0]


def opposite(edge_index: Tensor, nodes: int) -> Tensor:
    """The column of the opposite direction of every bond [E].

    Sorted by (tail, head) and sorted by (head, tail), a bond and its opposite have the same rank.

    >>> opposite(torch.tensor([[0, 1, 2, 1], [1, 2, 1, 0]]), 3)
    tensor([3, 2, 1, 0])
    """
    tail, head = edge_index
    found = torch.empty_like(tail)
    found[(tail * nodes + head).argsort()] = (head * nodes + tail).argsort()
    return found


class Ensemble(torch.nn.Module):
    """Several Chemprop models for the same tasks, whose outputs are averaged as `chemprop predict` does."""

    def __init__(self, members: Sequence[Any]) -> None:
        super().__init__()
        self.members = torch.nn.ModuleList(members)
        kinds = {(output_of(m), m.n_tasks, *_widths(m)) for m in members}
        require(len(kinds) == 1, "Expected models of an ensemble with the same inputs and outputs", got=_shown(kinds))

    @property
    def n_tasks(self) -> int:
        """How many tasks each member has."""
        return int(self.members[0].n_tasks)  # type: ignore[arg-type]

    @property
    def predictor(self) -> Any:
        """That of the first member; the others return the same."""
        return self.members[0].predictor

    @property
    def message_passing(self) -> Any:
        """That of the first member; the others read the same."""
        return self.members[0].message_passing

    def forward(self, molecules: Any, *descriptors: Tensor | None) -> Tensor:
        # A member may scale the features of the batch in place, so each gets its own.
        return torch.stack([member(copy.copy(molecules), *descriptors) for member in self.members]).mean(0)


def _members(model: Any) -> list[Any]:
    return list(model.members) if isinstance(model, Ensemble) else [model]


def _widths(model: Any) -> tuple[int, int]:
    """How many features the model reads per atom and per bond."""
    own = model.message_passing.hparams
    return own["d_v"], own["d_e"]


def _shown(kinds: Any) -> str:
    return "; ".join(f"{kind}, {tasks} tasks, {v} + {e} features" for kind, tasks, v, e in sorted(kinds))


class MPNNAdapter(Adapter):
    """`model(BatchMolGraph)`; soft masks scale what each directed bond holds after every activation."""

    def __init__(self, model: Any, task: int | None = None) -> None:
        super().__init__(model)
        self.output, self.task = output_of(model), task
        several = self.output == "probabilities" and model.n_tasks > 1
        require(
            not several or (task is not None and 0 <= task < model.n_tasks),
            "Expected `target`, the task to explain, of a multiclass model with several tasks",
            got=task,
        )
        passing = {type(member.message_passing).__name__ for member in _members(model)}
        self.weighs = {"BondMessagePassing", "AtomMessagePassing"} >= passing

    def takes(self, name: str) -> bool:
        return name in ("edge_attr", ATOM_DESCRIPTORS, DESCRIPTORS)

    def check_level(self, level: str) -> None:
        require(level == "graph", "Expected molecules to explain with a Chemprop model", got=f"level={level!r}")

    def call(self, inputs: Inputs) -> Answer:
        weight, count = inputs.arguments.get("edge_weight"), len(inputs.targets)
        with self._scaled(weight), nullcontext() if inputs.plain else self._summed():
            out = self.model(*_batch(inputs, weight, count))[:count]
        if out.dim() == 3:  # the classes of each task, or a mean beside how sure it is
            out = out[:, self.task or 0] if self.output == "probabilities" else out[..., 0]
        return Answer(out, count, None)

    @contextmanager
    def _scaled(self, weight: Tensor | None) -> Iterator[None]:
        """Scale the state of every directed bond; the last activation, of atoms, is left as it is."""
        if weight is None:
            yield
            return
        left: dict[Any, int] = {}

        def scale(layer: torch.nn.Module, inputs: Any, out: Tensor) -> Tensor:
            left[layer] -= 1
            return out * weight[:, None] if left[layer] >= 0 else out

        with ExitStack() as stack:
            for member in _members(self.model):
                passing = member.message_passing
                left[passing.tau] = int(passing.depth)
                stack.callback(passing.tau.register_forward_hook(scale).remove)
            yield

    @contextmanager
    def _summed(self) -> Iterator[None]:
        """Have messages summed by steps of torch that take a third of the time of those that Chemprop chose."""
        with ExitStack() as stack:
            for member in _members(self.model):
                passing = member.message_passing
                kind = type(passing)
                own = kind.__module__.startswith("chemprop.") and "forward" not in vars(passing)
                if own and kind.__name__ == "BondMessagePassing":
                    stack.callback(vars(passing).pop, "forward")
                    vars(passing)["forward"] = partial(_messages_passed, passing)
            yield


def _messages_passed(passing: Any, molecules: Any, of_atoms: Tensor | None = None) -> Tensor:
    """The forward of Chemprop's `BondMessagePassing` in other steps: the states of all atoms [V, d]."""
    molecules = passing.graph_transform(molecules)
    (tail, head), opposite_of = molecules.edge_index, molecules.rev_edge_index
    first = passing.initialize(molecules)
    state = passing.tau(first)
    nothing = state.new_zeros(len(molecules.V), state.size(1))
    for _ in range(1, passing.depth):
        back = state.index_select(0, opposite_of)
        if passing.undirected:
            state = back = (state + back) / 2
        message = nothing.index_add(0, head, state).index_select(0, tail) - back
        state = passing.update(message, first)
    return passing.finalize(nothing.index_add(0, head, state), molecules.V, of_atoms)  # type: ignore[no-any-return]


def _batch(inputs: Inputs, weight: Tensor | None, count: int) -> tuple[Any, Tensor | None, Tensor | None]:
    """The packed molecules as Chemprop has them, without what is gone, and the descriptors that the model reads."""
    from chemprop.data import BatchMolGraph

    atoms, bonds, batch = inputs.x, inputs.arguments["edge_attr"], inputs.arguments["batch"]
    of_atoms, of_molecules = inputs.arguments.get(ATOM_DESCRIPTORS), inputs.arguments.get(DESCRIPTORS)
    if not len(batch) or int(batch[-1]) < count - 1:
        # Chemprop counts molecules by the last atom, so a further molecule stands behind those without any.
        atoms, of_atoms, of_molecules = (_with_zeros(rows) for rows in (atoms, of_atoms, of_molecules))
        batch = torch.cat([batch, batch.new_tensor([count])])
    molecules = object.__new__(BatchMolGraph)  # made of tensors that may have a gradient, not of numpy arrays
    molecules.V, molecules.edge_index, molecules.batch = atoms, inputs.edge_index, batch
    molecules.E = bonds if weight is None else bonds * weight[:, None]
    molecules.rev_edge_index = opposite(inputs.edge_index, len(atoms))
    molecules._BatchMolGraph__size = int(batch[-1]) + 1
    return molecules, of_atoms, of_molecules


def _with_zeros(rows: Any) -> Any:
    return None if rows is None else torch.cat([rows, rows.new_zeros(1, rows.size(1))])


# -- what people pass -----------------------------------------------------------------------------------------


@dataclass(frozen=True, eq=False)
class Molecules:
    """A Chemprop model with molecules as graphs, and the names of its tasks where they are known."""

    model: Any
    graphs: list[Data]
    tasks: tuple[str, ...] = ()

    def options(self, given: Mapping[str, Any]) -> dict[str, Any]:
        """Keywords of `cf2.explain` with what is known of the model, and the task that `target` names."""
        chosen = {name: value for name, value in given.items() if name != "tasks"}
        tasks = tuple(self.tasks if given.get("tasks") is None else given["tasks"])
        right = len(tasks) in (0, self.model.n_tasks)
        require(right, f"Expected `tasks` to hold {self.model.n_tasks} names", got=f"{len(tasks)}: {tasks!r:.80}")
        chosen.setdefault("output", output_of(self.model))
        named = chosen.get("target") is not None or self.model.n_tasks == 1 or not tasks
        require(named, f"Expected `target`, one of the tasks {', '.join(map(str, tasks))}", got="None")
        if chosen.get("valid") == "molecule":
            chosen["valid"] = self._real(chosen, tasks)
        if chosen["output"] != "probabilities":
            return {"class_names": tasks or None} | chosen
        if self.model.n_tasks > 1:
            target = chosen.pop("target", None)
            chosen["call"] = OneTask(tasks.index(target) if target in tasks else target)
        return chosen

    def _real(self, chosen: Mapping[str, Any], tasks: Sequence[str]) -> Callable[[Data], bool]:
        """Whether an edited graph is a molecule, and the model answers otherwise on the features of that molecule.

        The edited graph has the features that its atoms had before. So the molecule that RDKit makes of it, with
        hydrogens where bonds were, is featurised and predicted by itself.
        """
        from chemprop.data import BatchMolGraph

        target = chosen.get("target", 0 if self.model.n_tasks == 1 else None)
        edits = chosen.get("edits") or ("remove",)
        task = tasks.index(target) if target in tasks else target
        require(
            chosen.get("question") == "counterfactual" and set(edits) == {"remove"} and output_of(self.model) in LABELS,
            "Expected a classifier, question='counterfactual' and edits='remove' for valid='molecule' with Chemprop",
            got=f"question={chosen.get('question')!r}, edits={edits!r} and {output_of(self.model)}",
        )
        good = isinstance(task, int) and 0 <= task < self.model.n_tasks and all(ROW in graph for graph in self.graphs)
        require(good, "Expected SMILES and one `target` for valid='molecule'", got=repr(target)[:80])
        featuriser = _featuriser(self.model)

        def answer(text: str) -> Any:
            with torch.no_grad():
                out = self.model(BatchMolGraph([featuriser(_molecule(text, 0))]))[0, task]
            return int(out.argmax()) if out.dim() else bool(out > 0.5)  # classes of the task, or its probability

        def real(graph: Data) -> bool:
            before = self.graphs[int(graph[ROW])]
            ids = graph.node_ids.tolist()
            left = {(ids[u], ids[v]) for u, v in graph.edge_index.t().tolist()}
            bonds = [pair for pair in map(tuple, before.edge_index.t().tolist()) if pair not in left]
            ends = [*bonds, *((atom,) for atom in set(range(before.num_nodes)).difference(ids))]
            text = smiles_of(edited_molecule(before.smiles, [("remove", place) for place in ends]))
            return text is not None and answer(text) != answer(before.smiles)

        return real


def molecules_of(model: Any, data: Any) -> Molecules | None:
    """A Chemprop model, several of them, or their paths, with the molecules; None for any other model."""
    several = list(model) if isinstance(model, list | tuple) else [model]
    if not several or not all(is_mpnn(part) or isinstance(part, str | os.PathLike) for part in several):
        return None
    model, tasks = joined([(part, ()) if is_mpnn(part) else load(part) for part in several])
    return Molecules(model, featurise(model, data), tasks)


def joined(parts: Sequence[tuple[Any, tuple[str, ...]]]) -> tuple[Any, tuple[str, ...]]:
    """One model of models with the names of their tasks: the mean of several, if these have the same tasks."""
    named = {tasks for _, tasks in parts if tasks}
    require(len(named) <= 1, "Expected models of an ensemble with the same tasks", got=" and ".join(map(str, named)))
    model = parts[0][0] if len(parts) == 1 else Ensemble([model for model, _ in parts])
    return model, next(iter(named), ())


def load(path: str | os.PathLike[str]) -> tuple[Any, tuple[str, ...]]:
    """The model in a Chemprop checkpoint, and the names of its tasks, if it holds them.

    A directory, such as `chemprop train` makes, stands for the mean of all models `*.pt` in it.
    """
    if not os.path.isdir(path):
        return _load(path)
    found = sorted(Path(path).rglob("*.pt"))
    require(len(found) > 0, f"Expected models `*.pt` in {os.fspath(path)!r}", got="none")
    return joined([_load(model) for model in found])


def _load(path: str | os.PathLike[str]) -> tuple[Any, tuple[str, ...]]:
    """The model of one file.

    Chemprop's own loader unpickles without limits. So the same bytes are first read by an unpickler that knows the
    layers and metrics of Chemprop and refuses everything else: no code in the file is run.
    """
    require_file(path, "a Chemprop checkpoint (.pt or .ckpt)", most=MAX_BYTES)
    _require_chemprop()
    from chemprop.models import MPNN

    content = Path(path).read_bytes()
    try:
        limited = SimpleNamespace(Unpickler=_Unpickler, __name__="limited")
        columns = torch.load(io.BytesIO(content), "cpu", limited, weights_only=False).get("output_columns")
        model = MPNN.load_from_file(io.BytesIO(content), "cpu")
    except CF2Error:
        raise
    except Exception as error:  # whatever a file that is something else makes of the loader
        got = f"{os.fspath(path)!r}, and {type(error).__name__}: {error!s:.200}"
        raise CF2Error("Expected a checkpoint of Chemprop 2.1 or later", got=got) from error
    return model, tuple(columns) if columns and all(isinstance(name, str) for name in columns) else ()


class _Unpickler(pickle.Unpickler):
    """Reads what Chemprop writes, and refuses to name anything else."""

    def find_class(self, module: str, name: str) -> Any:
        """As pickle's own."""
        plain = f"{module}.{name}" in CHECKPOINT_NAMES
        ours = plain or (module.startswith(CHECKPOINT_MODULES) and name.isidentifier())
        value = super().find_class(module, name) if ours else None
        require(
            plain or (isinstance(value, type) and issubclass(value, torch.nn.Module | Enum)),
            "Expected a checkpoint that holds weights, and layers and metrics of Chemprop",
            got=f"one that runs {module}.{name}",
            do="If you trust the file, read it yourself and pass the model: chemprop.models.load_model(path).",
        )
        return value


def _require_chemprop() -> None:
    try:
        import chemprop  # noqa: F401
    except ImportError as error:
        got = f"no such package ({error})"
        raise CF2Error("Expected chemprop to read a Chemprop model", got=got, do=extra("chemprop")) from error


def featurise(model: Any, data: Any) -> list[Data]:
    """Molecules as graphs with the features that the model reads: one or more SMILES, RDKit molecules or a data set.

    A `chemprop.data.MoleculeDataset` brings its own featuriser and descriptors; else the featuriser is the one of
    Chemprop's that has the widths of the model.
    """
    require(
        hasattr(model.message_passing, "W_h"),
        "Expected a Chemprop model that reads one molecule",
        got=f"{type(model).__name__}, which reads several",
    )
    if hasattr(data, "featurizer") and hasattr(data, "data"):  # a MoleculeDataset
        rows = [(data[row], point.mol) for row, point in enumerate(data.data)]
        graphs = [_graph(row.mg, molecule, None, row.V_d, row.x_d) for row, molecule in rows]
    else:
        items = [data] if isinstance(data, str) or hasattr(data, "GetAtoms") else list(data)
        if not all(isinstance(item, Data) for item in items):
            featuriser = _featuriser(model)
            read = [_molecule(item, row) for row, item in enumerate(items)]
            texts = [item if isinstance(item, str) else None for item in items]
            items = [_graph(featuriser(molecule), molecule, text) for molecule, text in zip(read, texts)]
            for row, graph in enumerate(items):
                if "smiles" in graph:
                    graph[ROW] = torch.tensor([[row]])
        graphs = items
    require(len(graphs) > 0, "Expected at least one molecule to explain", got="none")
    _check_descriptors(model, graphs)
    return graphs


def _check_descriptors(model: Any, graphs: Sequence[Data]) -> None:
    """Refuse molecules without the descriptors that the model reads beside them, or with others."""
    passing = model.message_passing
    of_atoms = 0 if passing.W_d is None else passing.W_d.in_features - passing.W_o.out_features
    widths = {ATOM_DESCRIPTORS: of_atoms, DESCRIPTORS: model.predictor.input_dim - passing.output_dim}
    for name, needed in widths.items():
        given = {0 if graph.get(name) is None else graph[name].size(1) for graph in graphs}
        require(
            given == {needed},
            f"Expected molecules with {needed} descriptors {name[-3:]}, as the model reads them",
            got=" or ".join(map(str, sorted(given))),
            do="Pass a chemprop.data.MoleculeDataset, which holds them.",
        )


def _molecule(item: Any, row: int) -> Any:
    from chemprop.utils import make_mol
    from rdkit import rdBase

    if hasattr(item, "GetAtoms"):
        return item
    expected = f"Expected a SMILES that RDKit can read, or a molecule of RDKit, at position {row}"
    require(isinstance(item, str), expected, got=type(item).__name__)
    with rdBase.BlockLogs():
        try:
            molecule = make_mol(item, keep_h=False, add_h=False)
        except Exception:  # of a text that is no SMILES, RuntimeError or whatever RDKit raises
            molecule = None
    require(molecule is not None and molecule.GetNumAtoms() > 0, expected, got=repr(item)[:80])
    return molecule


def _featuriser(model: Any) -> Any:
    from chemprop.featurizers import SimpleMoleculeMolGraphFeaturizer
    from chemprop.featurizers.atom import AtomFeatureMode, get_multi_hot_atom_featurizer
    from chemprop.featurizers.bond import RIGRBondFeaturizer

    widths = _widths(model)
    for mode in AtomFeatureMode:
        bonds = {"bond_featurizer": RIGRBondFeaturizer()} if mode.name == "RIGR" else {}
        featuriser = SimpleMoleculeMolGraphFeaturizer(atom_featurizer=get_multi_hot_atom_featurizer(mode), **bonds)
        if tuple(featuriser.shape) == widths:
            return featuriser
    raise CF2Error(
        "Expected a model that reads the features of one of Chemprop's featurisers",
        got=f"one that reads {widths[0]} per atom and {widths[1]} per bond",
        do="Pass a chemprop.data.MoleculeDataset, which has your featuriser.",
    )


def _graph(graph: Any, molecule: Any, smiles: str | None, of_atoms: Any = None, of_molecule: Any = None) -> Data:
    found = Data(
        x=torch.as_tensor(graph.V).float(),
        edge_index=torch.as_tensor(graph.edge_index).long().reshape(2, -1),
        edge_attr=torch.as_tensor(graph.E).float(),
    )
    if of_atoms is not None:
        found[ATOM_DESCRIPTORS] = torch.as_tensor(of_atoms).float()
    if of_molecule is not None:
        found[DESCRIPTORS] = torch.as_tensor(of_molecule).float().reshape(1, -1)
    text = _smiles(molecule) if smiles is None else smiles
    if text is not None:
        found.smiles = text
    return found


def _smiles(molecule: Any) -> str | None:
    """A SMILES of a molecule, if RDKit reads it back with the same atoms in the same order; a drawing rests on that."""
    from rdkit import Chem

    text = Chem.MolToSmiles(molecule, canonical=False)
    back = Chem.MolFromSmiles(text)
    return text if back is not None and _plain(back) == _plain(molecule) else None


def _plain(molecule: Any) -> tuple[Sequence[str], set[tuple[int, ...]]]:
    bonds = {tuple(sorted((bond.GetBeginAtomIdx(), bond.GetEndAtomIdx()))) for bond in molecule.GetBonds()}
    return [atom.GetSymbol() for atom in molecule.GetAtoms()], bonds
