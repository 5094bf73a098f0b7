"""The only code that calls the user's model: probabilities under soft masks, or after real removal."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, ExitStack, contextmanager, nullcontext
from dataclasses import replace
from typing import Any, Literal, get_args

import torch
from torch import Tensor
from torch.nn.functional import embedding_bag
from torch_geometric.data import Data

from cf2.errors import CF2Error, require, unknown_name
from cf2.masking import borrowed, masked_messages, message_layers, single_thread, sparse_features
from cf2.packing import Entries, Pack

Output = Literal["auto", "logits", "log_probabilities", "probabilities"]
Task = Literal["node", "graph"]
Masking = Literal["auto", "messages"]


class Predictor:
    """A frozen model as a function from packs to class probabilities [B, classes].

    `masked(pack)` gives a differentiable function of soft unit masks; `removed(pack, keep)` really removes.
    Use inside `with predictor:`, which borrows the model and gives it back as it was.
    """

    def __init__(
        self,
        model: torch.nn.Module,
        task: Task,
        *,
        output: Output = "auto",
        device: torch.device | str | None = None,
        masking: Masking = "auto",
    ) -> None:
        require(
            isinstance(model, torch.nn.Module),
            "Expected `model` to be a torch.nn.Module",
            got=type(model).__name__,
        )
        if output not in get_args(Output):
            raise unknown_name("`output`", output, get_args(Output))
        if masking not in get_args(Masking):
            raise unknown_name("`masking`", masking, get_args(Masking))
        self.model, self.task, self.output = model, task, output
        self.layers = message_layers(model)
        here = next((p.device for p in model.parameters()), torch.device("cpu"))
        self.device = here if device is None else _device(device)
        self._origin = here
        self._parameters = _parameters(model)
        reads = getattr(model, "supports_edge_weight", True)  # torch_geometric's GIN takes and drops them
        self._by_weight = masking == "auto" and self.takes("edge_weight") and reads
        self._removing = False
        self._probed = False
        self._sparse: bool | None = None  # whether wide features can be read by their non-zero entries
        self._open: list[Any] = []
        sizes = [max(p.shape) for p in model.parameters() if p.dim()] or [16]
        self._width, self._hidden = max(sizes), _hidden(model)
        self._depth = 2 * max(len(self.layers), 1)
        require(
            self._by_weight or bool(self.layers),
            "Expected a model with an `edge_weight` argument or torch_geometric message passing layers",
            got=f"{type(model).__name__}, in which no layer can be masked",
        )
        require(
            task == "node" or self.takes("batch") or self._parameters is None,
            "Expected the forward of a graph classifier to take `batch`, so that many graphs run at once",
            got=f"forward({', '.join(self._parameters or ())})",
        )

    def takes(self, name: str) -> bool:
        """Whether the model's forward has an argument of that name."""
        return self._parameters is not None and name in self._parameters

    def __enter__(self) -> Predictor:
        stack = _session(self.model, self.device, self._origin)
        stack.__enter__()
        self._open.append(stack)
        return self

    def __exit__(self, *error: Any) -> None:
        self._open.pop().__exit__(*error)

    # -- probabilities -------------------------------------------------------------------------------------

    def predict(self, pack: Pack) -> Tensor:
        """Probabilities on the graphs as they are, with every check of the model's output."""
        pack = pack.to(self.device)
        with torch.no_grad():
            out = self._call(pack, pack.dense(), pack.edge_index, None, None)
            if pack.entries is not None and self._sparse is None:
                self._sparse = True  # try it: is the output the same?
                quick = self._call(pack, pack.entries.value, pack.edge_index, None, None)
                self._sparse = torch.allclose(quick, out, atol=1e-4)
        self._settle(out)
        if self._by_weight and self.layers and not self._probed:
            self._probed, self._by_weight = True, self._reads_weights(pack)
        return self._probabilities(out)

    def _reads_weights(self, pack: Pack) -> bool:
        """Whether the output depends on `edge_weight`: some models take one and drop it."""
        weight = torch.ones(pack.edge_index.size(1), device=self.device, requires_grad=True)
        out = self._call(pack, pack.dense(), pack.edge_index, weight, None)
        return out.requires_grad and torch.autograd.grad(out.sum(), weight, allow_unused=True)[0] is not None

    def propagations(self, pack: Pack) -> int:
        """How often messages are passed in one run of the model; a layer may do so several times."""
        count: list[int] = []
        with ExitStack() as stack, torch.no_grad():
            for layer in self.layers:
                stack.callback(layer.register_propagate_forward_pre_hook(lambda *_: count.append(1)).remove)
            self._call(pack, pack.dense(), pack.edge_index, None, None)
        return len(count)

    def predict_rows(self, whole: Pack, nodes: Tensor) -> Tensor:
        """Probabilities of many nodes of one graph in one pass."""
        return self.predict(replace(whole, target=nodes, keys=nodes))

    def removed(self, pack: Pack, keep: Tensor) -> Tensor:
        """Probabilities after every unit outside `keep` [units, bool] is removed: edges gone, entries zero."""
        with torch.no_grad():
            x = self._features(pack, keep)
            stay = keep_columns(pack, keep)
            self._removing = True  # a removal inside `masked` must not see the soft masks
            try:
                return self._probabilities(self._call(pack, x, pack.edge_index[:, stay], None, stay))
            finally:
                self._removing = False

    def embed(self, pack: Pack) -> Tensor:
        """The states of each node after every message passing layer, side by side [N, width], or `x`."""
        states: list[Tensor] = []

        def keep(layer: torch.nn.Module, inputs: tuple[Any, ...], out: Any) -> None:
            state = out[0] if isinstance(out, tuple) else out
            if isinstance(state, Tensor) and state.size(0) == pack.x.size(0):
                states.append(state.detach().flatten(1))

        with ExitStack() as stack, torch.no_grad():
            for layer in self.layers:
                stack.callback(layer.register_forward_hook(keep).remove)
            self._call(pack, pack.dense(), pack.edge_index, None, None)
        return torch.cat(states, 1) if states else pack.dense()

    @contextmanager
    def masked(self, pack: Pack, *, messages: bool = False) -> Iterator[Callable[[Tensor], Tensor]]:
        """A function from soft unit masks [units] in [0, 1] to probabilities, differentiable in the masks.

        Masks are edge weights, A ⊙ M, where the model takes them; `messages=True` masks messages all the same,
        because a layer that normalises by weighted degree does not see a common factor and has no slope at 0.
        """
        by_weight = self._by_weight and not (messages and self.layers)
        maskable = pack.edge_unit >= 0
        all_maskable = bool(maskable.all())
        unit_of_edge = pack.edge_unit.clamp(min=0)
        weight: list[Tensor] = []
        has_edges = bool(maskable.any())

        def run(mask: Tensor) -> Tensor:
            x = self._features(pack, mask)
            edge = mask[unit_of_edge] if has_edges else mask.new_ones(unit_of_edge.shape)
            weight[:] = [edge if all_maskable else torch.where(maskable, edge, 1.0)]
            soft = weight[0] if by_weight else None
            return self._probabilities(self._call(pack, x, pack.edge_index, soft, None))

        if by_weight or not has_edges:
            yield run
        else:
            soft_messages = masked_messages(
                self.layers, pack.edge_index, lambda: None if self._removing else weight[0], pack.x.size(0)
            )
            with soft_messages:
                yield run

    def _features(self, pack: Pack, mask: Tensor) -> Tensor:
        """The features under a mask of units [N, d], or only the values of their non-zero entries [F]."""
        masked = bool(pack.entry_unit.numel())
        if pack.entries is not None:
            value = pack.entries.value * mask[pack.entry_unit] if masked else pack.entries.value
            return value if self._sparse else pack.dense(value)
        if not masked:
            return pack.x
        scale = torch.ones_like(pack.x).index_put((pack.entry_row, pack.entry_column), mask[pack.entry_unit].float())
        return pack.x * scale

    def _call(self, pack: Pack, x: Tensor, edge_index: Tensor, soft: Tensor | None, stay: Tensor | None) -> Tensor:
        extras = {
            name: value if kind != "edge" or stay is None else value[stay]
            for name, (kind, value) in pack.extras.items()
        }
        if soft is not None:
            known = extras.get("edge_weight")
            extras["edge_weight"] = soft if known is None else known * soft
        if self.task == "graph":
            extras["batch"] = pack.batch
            extras["batch_size"] = pack.size  # type: ignore[assignment]
        hooks: AbstractContextManager[None] = nullcontext()
        if x.dim() == 1:
            values, wide, x = x, pack.entries, pack.x
            assert wide is not None
            hooks = sparse_features(self.model, x, lambda weight: _product(wide, values, weight))
        try:
            with hooks:
                if self._parameters is None:
                    out = self.model(Data(x=x, edge_index=edge_index, **extras))
                else:
                    out = self.model(x, edge_index, **{k: v for k, v in extras.items() if k in self._parameters})
        except (RuntimeError, ValueError, TypeError, IndexError, KeyError, AttributeError) as error:
            raise CF2Error(
                f"Expected the model to run on a graph of {x.size(0)} nodes and {edge_index.size(1)} edges",
                got=f"{type(error).__name__}: {error}",
                do="Check that the model runs on your data by itself, model(x, edge_index).",
            ) from error
        return self._rows(out, pack)

    def _rows(self, out: object, pack: Pack) -> Tensor:
        rows = pack.size if self.task == "graph" else pack.x.size(0)
        if not isinstance(out, Tensor):
            raise CF2Error("Expected the model to return a tensor", got=type(out).__name__)
        shaped = out.unsqueeze(1) if out.dim() == 1 else out
        if shaped.dim() != 2 or shaped.size(0) != rows:
            raise CF2Error(
                f"Expected the model to return one row a {self.task}, [{rows}, classes]",
                got=f"shape {tuple(out.shape)}",
            )
        shaped = shaped if pack.target is None else shaped[pack.target]
        if not bool(torch.isfinite(shaped).all()) and self.output != "log_probabilities":
            bad = int((~torch.isfinite(shaped)).any(1).nonzero()[0])
            raise CF2Error(
                "Expected finite model outputs", got=f"NaN or infinity for {self.task} {int(pack.keys[bad])}"
            )
        return shaped

    def _settle(self, out: Tensor) -> None:
        """Decide once what the outputs are: logits, log-probabilities or probabilities."""
        if self.output != "auto":
            return
        ones = torch.ones(len(out), device=out.device)
        require(
            out.size(1) > 0 and not (out.size(1) == 1 and bool(((out == 0) | (out == 1)).all())),
            "Expected a model with at least two classes, or one logit for two classes",
            got=f"outputs of shape {tuple(out.shape)} that are all {out.flatten()[:1].tolist()}",
        )
        if out.size(1) == 1:
            require(
                bool(((out < 0) | (out > 1)).any()),
                "Expected to know whether the model's single output is a logit or a probability",
                got="values between 0 and 1, which either could give",
                do='Pass output="logits" or output="probabilities".',
            )
            self.output = "logits"
        elif bool((out >= 0).all()) and torch.allclose(out.sum(1), ones, atol=1e-4):
            self.output = "probabilities"
        elif bool((out <= 1e-6).all()) and torch.allclose(out.exp().sum(1), ones, atol=1e-4):
            self.output = "log_probabilities"
        else:
            self.output = "logits"

    def _probabilities(self, out: Tensor) -> Tensor:
        if out.size(1) == 1:
            one = (
                out
                if self.output == "probabilities"
                else out.exp()
                if self.output == "log_probabilities"
                else out.sigmoid()
            )
            return torch.cat([1 - one, one], 1)
        if self.output == "probabilities":
            return out
        return out.exp() if self.output == "log_probabilities" else out.softmax(1)

    def cost(self, nodes: int, edges: int) -> int:
        """About how many floats one pass keeps for a graph of this size; chunks are sized by it."""
        width = self._hidden if self._sparse else self._width
        return nodes * (width + self._depth * self._hidden) + edges * self._depth * self._hidden


def _product(entries: Entries, values: Tensor, weight: Tensor) -> Tensor:
    """features @ weight, from the non-zero entries."""
    return embedding_bag(
        entries.column,
        weight.contiguous(),
        entries.ptr,
        mode="sum",
        per_sample_weights=values,
        include_last_offset=True,
    )


def _device(name: torch.device | str) -> torch.device:
    """The device of that name, if torch knows it and has it here."""
    try:
        device = torch.device(name)
        torch.empty(0, device=device)
    except (RuntimeError, AssertionError, ValueError, NotImplementedError) as error:
        raise CF2Error("Expected a device that torch has here", got=f"{str(name)!r} ({error})") from error
    return device


def keep_columns(pack: Pack, keep: Tensor) -> Tensor:
    """The edge columns that stay when only the units in `keep` do."""
    if not keep.numel():
        return torch.arange(pack.edge_unit.numel(), device=pack.edge_unit.device)
    return ((pack.edge_unit < 0) | keep[pack.edge_unit.clamp(min=0)]).nonzero().flatten()


def _hidden(model: torch.nn.Module) -> int:
    """The widest output of any weight matrix: what an activation of one node takes."""
    return max([p.size(0) for p in model.parameters() if p.dim() > 1] or [16])


@contextmanager
def _session(model: torch.nn.Module, device: torch.device, origin: torch.device) -> Iterator[None]:
    with single_thread(), borrowed(model):
        if device != origin:
            model.to(device)
        try:
            yield
        finally:
            if device != origin:
                model.to(origin)


def _parameters(model: torch.nn.Module) -> tuple[str, ...] | None:
    """The names of forward's arguments, or None if it takes one Data object."""
    parameters = inspect.signature(model.forward).parameters.values()
    kinds = (inspect.Parameter.VAR_POSITIONAL, inspect.Parameter.VAR_KEYWORD)
    names = [p.name for p in parameters if p.kind not in kinds]
    if any(p.kind == inspect.Parameter.VAR_POSITIONAL for p in parameters):
        return ("x", "edge_index", *names)
    needed = [p for p in parameters if p.kind not in kinds and p.default is inspect.Parameter.empty]
    if len(needed) <= 1 and "edge_index" not in names:
        return None
    return tuple(names)
