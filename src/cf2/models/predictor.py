"""The only code that runs the user's model: under soft weights, or with elements of the graph really gone."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, replace
from typing import Any

import torch
from torch import Tensor

from cf2.errors import CF2Error, require
from cf2.models import outputs
from cf2.models.adapters import Adapter, Inputs, adapter_for, module_of, run, target_arguments
from cf2.models.equal_rows import Colouring, EqualRows, quotients
from cf2.models.lazy_features import LazyFeatures
from cf2.models.soft_masks import Loan, default_dtype, find_device, masked_messages, message_layers, restored_buffers
from cf2.models.soundness import (
    check_repeats,
    depends_on_order,
    depends_on_others,
    knows_nodes,
    some_edges,
    takes_one_graph,
    unchanged,
)
from cf2.options import Masking, Output
from cf2.sets.oracle import SHORT_CUTS
from cf2.sets.tests import Criterion
from cf2.units.packs import WIDE, Pack, sparse_features

MIN_WORK = 3 * 10**7  # nodes of a call times hidden², from which on it pays to compute equal rows once
PLAIN_FLOATS_PER_NODE = 4096  # so that a dense adjacency matrix of one call has some 10⁷ entries


@dataclass(frozen=True)
class Findings:
    """What is found out about a model by running it once; every worker of a request uses the same."""

    output: Output  # never "auto"
    columns: int  # how many numbers it returns per target
    reads_weights: bool  # soft masks can be edge weights
    reads_sparse: bool  # wide features can be read by their non-zero entries
    equal_rows: bool = False  # it gives the same where equal rows are computed once
    alone: bool = False  # the output depends on what else is in the batch, so that each graph is run by itself
    ordered: bool = False  # and on the order of nodes or edges, so that two that look alike are not the same to it
    edge_slopes: bool = True  # the output has a gradient by soft masks of edges
    feature_slopes: bool = True  # and by those of feature entries
    size: float = 0.0  # of the outputs by which answers are decided; rounding is relative to it


class NoSlopes(CF2Error):
    """The model has no gradient by the units that are asked about."""


class Spent(Exception):
    """The work that a search was allowed is done."""


class Predictor:
    """A frozen model as a function from packs to class probabilities [B, classes].

    `predict` runs it on graphs as they are, `hard` on graphs in which elements are gone, `soft` gives a
    differentiable function of how far they are there. Use inside `with predictor:`, which borrows the model and
    gives it back as it was.
    """

    def __init__(
        self,
        model: torch.nn.Module,
        level: str,
        *,
        output: Output = "auto",
        device: torch.device | str | None = None,
        masking: Masking = "auto",
        findings: Findings | None = None,
        adapter: Adapter | None = None,
    ) -> None:
        model = module_of(model)
        self.adapter = adapter_for(model, level) if adapter is None else adapter
        self.model, self.level, self.output, self.findings = model, level, output, findings
        self.layers = message_layers(model)
        here = next((p.device for p in model.parameters()), torch.device("cpu"))
        self.device = here if device is None else find_device(device)
        self._origin = here
        drops = not getattr(model, "supports_edge_weight", True)  # torch_geometric's GIN takes and drops them
        self._may_weigh = masking == "auto" and self.adapter.weighs and not drops
        self.sight: tuple[int | None, str] = (None, "both")  # how many hops it was measured to look, and which way
        self._removing = False
        self._takes_one = False  # graph, and not several side by side: known before anything else is
        self._left = float("inf")  # of the floats that calls may keep, see `bounded`
        self._width_of_rows = 1
        self._loans: list[Loan] = []
        sizes = [max(p.shape) for p in model.parameters() if p.dim()] or [16]
        self._width, self._hidden = max(sizes), _hidden(model)
        self._depth = 2 * max(len(self.layers), 1)
        self._sharing = True  # of equal rows, which a verdict does without
        self._plain = not self.layers and not self._may_weigh  # nothing is known of how it reads edges

    def __enter__(self) -> Predictor:
        loan = Loan(self.model, self.device, self._origin)
        self._loans.append(loan)
        loan.__enter__()
        return self

    def __exit__(self, *error: Any) -> None:
        self._loans[-1].__exit__(*error)
        self._loans.pop()

    def give_back(self) -> None:
        """End every loan that an interrupt has left open; where there is none, nothing happens."""
        while self._loans:
            self.__exit__()
        self._removing, self._sharing, self._left = False, True, float("inf")

    @contextmanager
    def bounded(self, floats: float) -> Iterator[None]:
        """Calls may keep so many floats together, and the next one ends what is done here by `Spent`."""
        self._left = floats
        try:
            yield
        finally:
            self._left = float("inf")

    # -- the graph as it is ---------------------------------------------------------------------------------

    def predict(self, pack: Pack) -> Tensor:
        """Probabilities on the graphs as they are."""
        return self.probabilities(self.rows(pack))

    def probabilities(self, rows: Tensor) -> Tensor:
        """The class probabilities that rows of the model stand for."""
        return outputs.probabilities(rows, self._known.output)

    def rows(self, pack: Pack) -> Tensor:
        """What the model returns for the graphs as they are; the first time, it is found out what the model is."""
        pack = pack.to(self.device)
        if self.findings is None:
            self.findings = self._find_out(pack)
        with torch.no_grad():
            return self._rows(pack)

    @property
    def alone(self) -> bool:
        """Whether the model mixes all that is in a batch: it is run on whole graphs then, one at a time."""
        return self._takes_one if self.findings is None else self.findings.alone

    @property
    def ordered(self) -> bool:
        """Whether the output changes with the order of nodes or edges; as long as that is not known, it may."""
        return self.findings is None or self.findings.ordered

    def _apart(self, pack: Pack) -> bool:
        return self.alone and len(pack.node_ptr) > 2

    def _rows(self, pack: Pack) -> Tensor:
        """What the model returns for the graphs as they are, without the edges that could be added."""
        if self._apart(pack):
            return torch.cat([self._rows(one) for one in pack.singles()])
        if pack.units.absent is None:
            return self._call(pack, self._scaled(pack, None), pack.edge_index, None, None)
        return self._hard_rows(pack, torch.ones_like(pack.units.absent))

    def find_out_on_one_graph(self, pack: Pack) -> None:
        """Find out what the model is from a whole graph, by itself and beside others if it runs on several at all."""
        self.findings = None  # what was found on parts of the graph is not true of it
        self.findings = self._find_out(pack.to(self.device), one_graph=True)

    def knows_nodes(self, pack: Pack) -> bool:
        """Whether the output for a whole graph depends on how its nodes are numbered."""
        with torch.no_grad():
            return knows_nodes(pack.to(self.device), self._call, self.differ)

    def _find_out(self, pack: Pack, one_graph: bool = False) -> Findings:
        """Run the model a few times: is it a function of the graph, and what does it read and return?"""
        with restored_buffers(self.model), torch.no_grad():
            self._takes_one = self.level == "graph" and takes_one_graph(pack, self._call)
            rows, again = self._rows(pack), self._rows(pack)
            output = outputs.settle(rows, self.output)

            def differ(one: Tensor, other: Tensor) -> Tensor:
                return outputs.differ(one, other, output, self.precision)

            check_repeats(rows, again, differ)
            pack = pack.singles()[0] if self._takes_one else pack
            try:
                alone = self._takes_one or depends_on_others(pack, self._hard_rows, differ, self.model, self.precision)
            except CF2Error:
                if not one_graph:
                    raise
                alone = True  # it runs on this graph, and not on several: it holds something for each of its nodes
            ordered = alone or depends_on_order(pack, self._call, differ)
        sparse, weights = self._reads_sparse(pack, differ), self._reads_weights(pack)
        size = outputs.size_of(rows, output)
        equal = not ordered and self._shares_rows(pack, differ)
        slopes = self._slopes(pack, weights)
        return Findings(output, rows.size(1), weights, sparse, equal, alone, ordered, *slopes, size)

    def differ(self, one: Tensor, other: Tensor) -> Tensor:
        """Which of the model's rows [B, width] are not the same numbers summed in another order, bool [B]."""
        return outputs.differ(one, other, self._known.output, self.precision)

    def band(self, criterion: Criterion) -> Tensor | float:
        """The slack within which an answer hangs on rounding, per instance or for all."""
        return outputs.guard_band(criterion, self._known.size, self.precision)

    @property
    def precision(self) -> float:
        """The spacing of the coarsest numbers that the model computes with."""
        kinds = {p.dtype for p in self.model.parameters() if p.is_floating_point()} or {torch.float32}
        return max(torch.finfo(kind).eps for kind in kinds)

    def _reads_weights(self, pack: Pack) -> bool:
        """Whether the output depends on `edge_weight`: some models take one and drop it."""
        if not self._may_weigh or not self.layers:
            return self._may_weigh
        return self._has_slope(pack, by_weight=True)

    def _slopes(self, pack: Pack, reads_weights: bool) -> tuple[bool, bool]:
        """Whether the output has a gradient by soft masks of edges, and by those of feature entries."""
        by_features = self._has_slope(pack, by_weight=False, by_features=True)
        if self._plain or not pack.edge_index.size(1):
            return by_features and not self._plain, by_features
        return self._has_slope(pack, by_weight=reads_weights), by_features

    def _has_slope(self, pack: Pack, *, by_weight: bool, by_features: bool = False) -> bool:
        """Run the model backwards once: does the gradient by edge weights, messages or features exist?"""
        kind = pack.x.dtype if pack.x.is_floating_point() else torch.float32
        weight = torch.ones(pack.edge_index.size(1), dtype=kind, device=self.device, requires_grad=True)
        x = pack.dense()
        with ExitStack() as stack:
            if by_features:
                weight = x = x.to(kind).detach().requires_grad_()
            elif not by_weight:
                columns = self.adapter.columns
                stack.enter_context(masked_messages(self.layers, pack.edge_index, lambda: weight, columns))
            try:
                rows = self._call(pack, x, pack.edge_index, weight if by_weight else None, None)
                return rows.requires_grad and torch.autograd.grad(rows.sum(), weight, allow_unused=True)[0] is not None
            except (CF2Error, RuntimeError):  # a step that cannot be differentiated, such as `x.numpy()`
                return False

    def has_slopes(self, pack: Pack) -> bool:
        """Whether `soft` gives gradients by the units of a pack; a search makes do with trials where not."""
        edges = self._known.edge_slopes or not pack.units.edges.some
        return edges and (self._known.feature_slopes or not (pack.units.entries.some or pack.units.changes is not None))

    def _reads_sparse(self, pack: Pack, differ: Callable[[Tensor, Tensor], Tensor]) -> bool:
        """Whether the output is the same when wide features are read by their non-zero entries."""
        short_cut = "sparse" in SHORT_CUTS and pack.x.size(1) >= WIDE
        if not short_cut or pack.x.dtype not in (torch.float32, torch.float64):
            return False
        sparse = pack.sparse or sparse_features([pack.x], [pack.x.nonzero()])
        with torch.no_grad():
            rows = self._call(pack, pack.dense(), pack.edge_index, None, None)
            lazy = LazyFeatures.of(pack.x, sparse)
            quick = self._call(pack, lazy, pack.edge_index, None, None)
        return not lazy.unfoldings and not bool(differ(quick, rows).any())

    def rows_of_many(self, whole: Pack, targets: Tensor) -> Tensor:
        """What the model returns for many targets [n, nodes to read] of one graph in one pass."""
        return self.rows(replace(whole, targets=targets, keys=targets))

    def propagations(self, pack: Pack) -> int:
        """How often messages are passed in one run of the model, one after the other.

        A layer may do so several times. Along other edges each time (one relation after the other) that counts once.
        """
        seen: list[tuple[Any, int | None, Any]] = []

        def note(layer: Any, inputs: tuple[Any, ...]) -> None:
            edges = inputs[0]
            content = edges.cpu().numpy().tobytes() if isinstance(edges, Tensor) and not edges.is_sparse else id(edges)
            seen.append((layer, self.adapter.relation(layer, edges), content))

        with ExitStack() as stack, torch.no_grad():
            for layer in self.layers:
                stack.callback(layer.register_propagate_forward_pre_hook(note).remove)
            self._call(pack, pack.dense(), pack.edge_index, None, None)
        by_layer: dict[Any, Counter[Any]] = {}
        by_relation = Counter(relation for _, relation, _ in seen if relation is not None)
        for layer, relation, content in seen:
            if relation is None:
                by_layer.setdefault(layer, Counter())[content] += 1
        return sum(_deepest(count) for count in by_layer.values()) + max(by_relation.values(), default=0)

    def embed(self, pack: Pack) -> Tensor:
        """The states of each node after every message passing layer, side by side [N, width], or `x`."""
        if self._apart(pack):
            return torch.cat([self.embed(one) for one in pack.singles()])
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

    # -- the graph with elements gone, or half there ----------------------------------------------------------

    def hard(self, pack: Pack, states: Tensor, *, shares_rows: bool = True) -> Tensor:
        """Probabilities on graphs in which only the units with a state [units, bool] are there.

        An edge that is not there is not in `edge_index`, so degrees and attention are computed anew; a node that is
        not there has no row in any tensor; a feature entry that is not there is 0. A graph without any node is no
        input: the model is not run on it, and what it says of it is NaN, which passes no test. Without `shares_rows`,
        no row of a layer is taken from another node that is equal to it.
        """
        self._sharing = shares_rows
        try:
            return self.probabilities(self._hard_rows(pack, states))
        finally:
            self._sharing = True

    def _hard_rows(self, pack: Pack, states: Tensor) -> Tensor:
        if self._apart(pack):
            return torch.cat([self._hard_rows(one, own) for one, own in zip(pack.singles(), pack.split(states))])
        states = pack.units.there(states)
        with torch.no_grad():
            x = self._features(pack, pack.units.entries.present(states), states)
            there = pack.units.edges.present(states)
            stay = None if there is None else there.nonzero().flatten()
            nodes = None if pack.units.nodes is None else pack.units.nodes.present(states)
            self._removing = True  # a removal inside `soft` must not see the soft masks
            try:
                if nodes is not None and not bool(nodes.all()):
                    return self._rows_without_nodes(pack, x, nodes, stay)
                edge_index = pack.edge_index if stay is None else pack.edge_index[:, stay]
                return self._call(pack, x, edge_index, None, stay)
            finally:
                self._removing = False

    def on_what_is_left(self, inputs: Inputs, key: Callable[[int], object]) -> Tensor:
        """Probabilities on graphs as they are handed over, without what is gone; `key` names one in an error.

        This is `hard` for a caller that has taken out itself what is gone, and knows that the graphs are independent.
        """
        self._removing = True
        try:
            with torch.no_grad():
                return self.probabilities(self._run(inputs, key))
        finally:
            self._removing = False

    def on_nothing(self, count: int) -> Tensor:
        """What is said of so many graphs without any node: NaN, which passes no test."""
        return self.probabilities(torch.full((count, self._width_of_rows), torch.nan, device=self.device))

    def _rows_without_nodes(self, pack: Pack, x: Tensor, nodes: Tensor, stay: Tensor | None) -> Tensor:
        """What the model returns where only some nodes [N, bool] are left; NaN for graphs that have none."""
        smaller, kept, left = pack.without_nodes(nodes)
        if not len(left):
            return torch.full((pack.num_instances, self._width_of_rows), torch.nan, device=x.device)
        whole = (smaller.edge_index >= 0).all(0)  # an edge that was added may lead to a node that is gone
        stay = whole.nonzero().flatten() if stay is None else stay[whole[stay]]
        x = LazyFeatures.of(smaller.x, x.sparse.take(kept)) if isinstance(x, LazyFeatures) else x[kept]
        rows = self._call(smaller, x, smaller.edge_index[:, stay], None, stay)
        if len(left) == pack.num_instances:
            return rows
        return rows.new_full((pack.num_instances, rows.size(1)), torch.nan).index_copy(0, left, rows)

    @contextmanager
    def soft(self, pack: Pack, *, messages: bool = False) -> Iterator[Callable[[Tensor], Tensor]]:
        """A function from soft states of units [units] in [0, 1] to probabilities, differentiable in the states.

        States are edge weights, A ⊙ M, where the model takes them; `messages=True` scales messages all the same,
        because a layer that normalises by weighted degree does not see a common factor and has no slope at 0.
        """
        if not self.has_slopes(pack):
            raise NoSlopes(
                "Expected a model with an `edge_weight` argument or torch_geometric message passing layers, whose "
                "output has a gradient",
                got=f"{type(self.model).__name__}, which does not support soft masks",
                do="Remove detach(), torch.no_grad() and argmax from its forward.",
            )
        if self._apart(pack):
            singles = pack.singles()
            yield lambda states: torch.cat(
                [self._softly(one, own, messages) for one, own in zip(singles, pack.split(states))]
            )
            return
        absent = pack.units.absent is not None  # a message of weight 0 still counts in a degree; a weight of 0 does not
        by_weight = self._known.reads_weights and not (messages and self.layers and not absent)
        edges, entries = pack.units.edges.reader(), pack.units.entries.reader()
        weight: list[Tensor | None] = []

        def probabilities(states: Tensor) -> Tensor:
            there = pack.units.there(states)
            x = self._features(pack, entries(there), there)
            weight[:] = [edges(there)]
            soft = weight[0] if by_weight else None
            rows = self._call(pack, x, pack.edge_index, soft, None)
            if not x.is_floating_point():  # what only reads categories has no slope
                rows = rows + 0.0 * states.sum()
            require(
                rows.requires_grad or not states.requires_grad or not pack.units.count,
                "Expected a model whose output has a gradient",
                got="one without",
                do="Remove detach(), torch.no_grad() and argmax from its forward.",
            )
            return self.probabilities(rows)

        def messages_of() -> Tensor | None:
            return None if self._removing else weight[0]

        with ExitStack() as stack:
            if pack.units.edges.some and not by_weight:
                stack.enter_context(masked_messages(self.layers, pack.edge_index, messages_of, self.adapter.columns))
            yield probabilities

    def _softly(self, pack: Pack, states: Tensor, messages: bool) -> Tensor:
        with self.soft(pack, messages=messages) as run_softly:
            return run_softly(states)

    @property
    def _known(self) -> Findings:
        assert self.findings is not None, "predict comes first"
        return self.findings

    def _features(self, pack: Pack, there: Tensor | None, units: Tensor) -> Tensor:
        """The features with entries scaled and changed [N, d]."""
        x = self._scaled(pack, there)
        return x if pack.units.changes is None else pack.units.changes.apply(x, units)

    def _scaled(self, pack: Pack, there: Tensor | None) -> Tensor:
        if pack.sparse is not None:
            return LazyFeatures.of(pack.x, pack.sparse if there is None else pack.sparse.scaled(there))
        if there is None or (there.dtype != torch.bool and not pack.x.is_floating_point()):
            return pack.x  # a part of a category is none, and an embedding takes no float
        scale = torch.ones_like(pack.x).index_put((pack.entry_row, pack.entry_column), there.to(pack.x.dtype))
        return pack.x * scale

    def _call(self, pack: Pack, x: Tensor, edge_index: Tensor, soft: Tensor | None, stay: Tensor | None) -> Tensor:
        return self._run(self._inputs(pack, x, edge_index, soft, stay), pack.key)

    def _inputs(self, pack: Pack, x: Tensor, edge_index: Tensor, soft: Tensor | None, stay: Tensor | None) -> Inputs:
        """What the model is handed of a pack, with only the columns of edges that `stay`."""
        arguments: dict[str, Any] = {
            name: value if stay is None or kind != "edge" else value[stay]
            for name, (kind, value) in pack.extras.items()
        }
        if soft is not None:
            known = arguments.get("edge_weight")
            kind = x.dtype if x.is_floating_point() else soft.dtype
            arguments["edge_weight"] = soft.to(kind) if known is None else known * soft.to(known.dtype)
        arguments |= target_arguments(self.level, pack.targets, pack.batch)
        return Inputs(x, edge_index, arguments, pack.targets, plain=not self._sharing)

    def _run(self, inputs: Inputs, key: Callable[[int], object]) -> Tensor:
        """What the model returns, within the work that it is allowed; it must leave its inputs as they are."""
        work = self.cost(len(inputs.x), inputs.edge_index.size(1)) * (3 if torch.is_grad_enabled() else 1)
        if work > self._left:
            raise Spent
        self._left -= work
        if isinstance(inputs.x, LazyFeatures) and self.findings is not None and not self.findings.reads_sparse:
            inputs = replace(inputs, x=inputs.x.dense())
        with ExitStack() as stack:
            if self._loans and self._loans[0].dtype != torch.get_default_dtype():
                stack.enter_context(default_dtype(self._loans[0].dtype))
            watched = {"x": inputs.x, "edge_index": inputs.edge_index} | inputs.arguments
            tensors = {name: value for name, value in watched.items() if type(value) is Tensor}
            stack.enter_context(unchanged(tensors, compare=self.findings is None))
            rows = self._equal_rows(inputs)
            if rows is None:
                rows = run(self.adapter, inputs, self.level)
        if self.output != "log_probabilities" and not bool(torch.isfinite(rows).all()):
            bad = int((~torch.isfinite(rows)).any(1).nonzero()[0])
            raise CF2Error("Expected finite model outputs", got=f"NaN or infinity for {self.level} {key(bad)}")
        self._width_of_rows = rows.size(1)
        return rows

    def _equal_rows(self, inputs: Inputs, always: bool = False) -> Tensor | None:
        """What the model returns where equal rows are computed once; None where that does not pay or is not known."""
        known = self.findings is not None and self.findings.equal_rows
        pays = self._sharing and known and len(inputs.x) * self._hidden**2 >= MIN_WORK
        if not (pays or always) or torch.is_grad_enabled() or type(inputs.x) is not Tensor:
            return None
        colouring = Colouring(inputs.x)
        x = EqualRows.of(inputs.x[colouring.first[0]], colouring, 0)
        try:
            with quotients(self.layers):
                rows = run(self.adapter, replace(inputs, x=x), self.level)
        except CF2Error:  # it went another way than at first
            return None
        return rows if len(colouring.index) > 1 else None

    def _shares_rows(self, pack: Pack, differ: Callable[[Tensor, Tensor], Tensor]) -> bool:
        """Whether the output is the same when equal rows are computed once."""
        if "quotient" not in SHORT_CUTS or not self.layers or self.adapter.dense or pack.sparse is not None:
            return False
        some, stay = some_edges(pack)
        inputs = self._inputs(some, some.dense(), some.edge_index[:, stay], None, stay)
        with torch.no_grad():
            rows, quick = self._run(inputs, some.key), self._equal_rows(inputs, always=True)
        return quick is not None and not bool(differ(quick, rows).any())

    def plain(self, x: Tensor, edge_index: Tensor, arguments: dict[str, Tensor], targets: Tensor) -> Tensor:
        """What the model returns for one graph by itself, [1, width]: a call as the user would make it."""
        if not len(x):
            return torch.full((1, self._width_of_rows), torch.nan)
        batch = torch.zeros(len(x), dtype=torch.long, device=self.device)
        given: dict[str, Any] = {name: value.to(self.device) for name, value in arguments.items()}
        targets = targets.to(self.device)
        given |= target_arguments(self.level, targets, batch)
        dtype = self._loans[0].dtype if self._loans else torch.get_default_dtype()
        with torch.no_grad(), default_dtype(dtype):
            inputs = Inputs(x.to(self.device), edge_index.to(self.device), given, targets, plain=True)
            rows = run(self.adapter, inputs, self.level).detach()
        if bool(rows.isfinite().all()):  # scores may have looked like probabilities when it was found out what they are
            outputs.FORMS[self._known.output].check(rows.float())
        return rows

    def cost(self, nodes: Any, edges: Any) -> Any:
        """About how many floats one pass keeps for graphs of this size, numbers or tensors; chunks are sized by it."""
        if self._plain or self.adapter.dense:  # it may well make a dense matrix of all nodes of a call
            return nodes * PLAIN_FLOATS_PER_NODE + edges
        narrow = self.findings is not None and self.findings.reads_sparse
        width = self._hidden if narrow else self._width
        return nodes * (width + self._depth * self._hidden) + edges * self._depth * self._hidden


def _deepest(count: Counter[Any]) -> int:
    """The most often that one edge list was used; empty ones (b"") look alike, and count only where all are."""
    return max([times for content, times in count.items() if content != b""], default=1)


def _hidden(model: torch.nn.Module) -> int:
    """The widest output of any weight matrix: what an activation of one node takes."""
    return max([p.size(0) for p in model.parameters() if p.dim() > 1] or [16])
