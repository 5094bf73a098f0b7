"""A borrowed model is given back as it was: after threads, interrupts at any line, and in every mode of torch."""

from __future__ import annotations

import os
import random
import signal
import sys
import threading
import time
import warnings
from collections.abc import Iterator
from contextlib import suppress
from types import FrameType
from typing import Any

import pytest
import torch
from torch import nn

import cf2
from cf2.models import soft_masks
from cf2.models.predictor import Predictor
from toys import NodeNet, model_state, random_graph, same_state, tried

DATA = random_graph(16, 22, seed=1)


def state_of(model: torch.nn.Module) -> dict[str, object]:
    """Modes, hooks and weights of a model, and the settings of torch."""
    settings = [torch.is_grad_enabled(), torch.get_num_threads(), torch.get_default_dtype()]
    return {**model_state(model), "settings": settings, "random": torch.get_rng_state()}


def answers(model: torch.nn.Module) -> list[Any]:
    found = cf2.explain(model, DATA, nodes=range(4), effort="quick")
    return [(e.key, e.status, e.selected.tolist()) for e in found]


def test_threads_that_share_a_model_wait_for_each_other() -> None:
    model = NodeNet("gcn", seed=2).train()
    before, expected = state_of(model), answers(model)
    given: list[Any] = []

    def work() -> None:
        given.extend(answers(model) for _ in range(3))

    threads = [threading.Thread(target=work) for _ in range(3)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert given == [expected] * 9
    assert same_state(state_of(model), before)


@pytest.fixture
def interrupts() -> Iterator[None]:
    """An alarm is a KeyboardInterrupt; it comes after so much CPU time, whatever else the machine does."""
    before = signal.signal(signal.SIGPROF, signal.default_int_handler)
    yield
    signal.setitimer(signal.ITIMER_PROF, 0)
    signal.signal(signal.SIGPROF, before)


@tried(few=25, many=1000)
@pytest.mark.usefixtures("interrupts")
def test_an_interrupt_at_any_moment_leaves_the_model_as_it_was(seeds: range) -> None:
    """A real signal, after a random part of the time that the call takes; the model has all that can be left behind."""
    model = nn.Sequential(NodeNet("gcn", seed=2), nn.BatchNorm1d(3)).train()
    model.forward = lambda x, edge_index: model[1](model[0](x, edge_index))
    model[0].register_forward_hook(lambda *given: None)
    model[0].convs[0].cached = True
    answers(model)
    before, started, hit = state_of(model), time.process_time(), 0
    expected = answers(model)
    whole = time.process_time() - started
    for seed in seeds:
        signal.setitimer(signal.ITIMER_PROF, max(1e-4, 1.1 * whole * random.Random(seed).random()))
        with suppress(KeyboardInterrupt):
            try:
                hit -= answers(model) == expected  # a search that was interrupted leaves the best so far
            finally:
                signal.setitimer(signal.ITIMER_PROF, 0)
        hit += 1
        assert same_state(state_of(model), before), seed
        assert not soft_masks._HOLDERS, seed
    assert hit > len(seeds) / 2
    assert answers(model) == expected


@pytest.mark.skipif(not hasattr(os, "fork"), reason="needs fork")
def test_a_fork_has_a_model_of_its_own_and_autocast_does_not_matter() -> None:
    model = NodeNet("gcn", seed=2).train()
    expected, before = answers(model), state_of(model)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # that threads were started
        child = os.fork()
    if child == 0:
        os._exit(int(answers(model) != expected or not same_state(state_of(model), before)))
    assert os.waitpid(child, 0)[1] == 0
    with torch.autocast("cpu", dtype=torch.bfloat16):
        found = cf2.explain(model, DATA, nodes=range(4), effort="quick")
        assert torch.is_autocast_enabled("cpu")
    assert cf2.check(found, model, DATA)
    assert same_state(state_of(model), before)


PER_MODULE = ("_state", "<genexpr>", "<dictcomp>")  # the same lines again and again


class Interrupt:
    """Raises KeyboardInterrupt at the n-th line that is run in the file that borrows models."""

    def __init__(self, number: int) -> None:
        self.left, self.hit = number, False

    def __call__(self, frame: FrameType, event: str, value: Any) -> Any:
        if frame.f_code.co_filename != soft_masks.__file__ or frame.f_code.co_name in PER_MODULE:
            return None
        if not self.hit:
            self.left -= 1
            if self.left < 0:
                self.hit = True
                raise KeyboardInterrupt
        return self


def test_an_interrupt_at_any_line_of_borrowing_leaves_the_model_as_it_was() -> None:
    model = NodeNet("gin", seed=2).train()
    predictor, hooks = Predictor(model, "node"), []
    before, number, trace = state_of(model), 0, sys.gettrace()
    while True:
        interrupt = Interrupt(number)
        sys.settrace(interrupt)
        try:
            with predictor:
                hooks.append(model.register_forward_hook(lambda *given: None))  # as one that was left behind
        except KeyboardInterrupt:
            pass
        finally:
            sys.settrace(trace)
            predictor.give_back()  # as `cf2.explain` does
        assert same_state(state_of(model), before), f"after {number} lines"
        if not interrupt.hit:
            break
        number += 1 if number < 100 else 7
    assert number > 60
