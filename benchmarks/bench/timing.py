"""How time and memory are measured: CPU seconds of one thread, and the peak of a fresh process."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from typing import Any

from cf2.errors import CF2Error
from cf2.models.soft_masks import single_thread
from cf2.options import Key
from cf2.results.explanation import Explanation
from cf2.runs.engines.machine import worker_context
from cf2.runs.session import Request, Session


def cpu(function: Callable[[], Any]) -> float:
    """CPU seconds of a call on one thread; other programs on the machine do not count."""
    with single_thread():
        start = time.process_time()
        function()
        return time.process_time() - start


def wall(function: Callable[[], Any]) -> float:
    """Seconds on the wall clock."""
    start = time.perf_counter()
    function()
    return time.perf_counter() - start


def per_explanation(request: Request, keys: Sequence[Key]) -> float:
    """CPU seconds that one explanation takes when all keys are explained together, verdicts included."""
    return explained(request, keys)[0]


def explained(request: Request, keys: Sequence[Key]) -> tuple[float, list[Explanation]]:
    """The same, and the explanations."""
    with Session(request) as session:
        measured = session.measure(keys)
    with Session(measured) as session:
        session.explain(keys[:2])  # whatever is done once is done
        found: list[Explanation] = []
        return cpu(lambda: found.extend(session.explain(keys))) / len(keys), found


def in_fresh_process(function: Callable[..., Any], *arguments: Any) -> tuple[Any, float]:
    """What a function returns, and by how many MiB it raised the peak memory of a process of its own."""
    context = worker_context()
    ours, theirs = context.Pipe()
    process = context.Process(target=_measured, args=(theirs, function, arguments))
    process.start()
    theirs.close()
    try:
        result: tuple[Any, float] = ours.recv()
    except EOFError:
        raise CF2Error(f"Expected {function.__name__} to finish in a process of its own") from None
    finally:
        process.join()
    return result


def _measured(connection: Any, function: Callable[..., Any], arguments: tuple[Any, ...]) -> None:
    import resource
    import sys

    import torch

    torch.set_num_threads(1)
    unit = 1 << 20 if sys.platform == "darwin" else 1 << 10
    before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    value = function(*arguments)
    connection.send((value, (resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before) / unit))
