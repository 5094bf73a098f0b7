"""Explaining again, one at a time: with a place to wait, a time limit, and a way to give up.

Python cannot end a thread from outside. So what is done here asks before every run of the model whether to go on.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from concurrent.futures import CancelledError, Future, ThreadPoolExecutor
from dataclasses import dataclass, field
from typing import Any

from cf2.errors import CF2Error, require

SECONDS = 300.0  # that one explanation may take
WAITING = 3  # explanations that may wait for the one that is made; each of them holds a thread of the server

GoOn = Callable[[], None]  # returns, or raises `Stopped`


class Stopped(CF2Error):
    """An explanation that is not made: there is no room, the time is over, or it is not wanted any more."""


@dataclass(eq=False)
class _Job:
    visitor: str
    cancelled: threading.Event = field(default_factory=threading.Event)
    until: float = float("inf")
    runs: int = 0  # of the model
    future: Future[Any] = field(init=False)


class Queue:
    """Does what it is given one after the other, in a thread of its own.

    Parameters
    ----------
    seconds : float
        How long each may take; the time that it waits does not count.
    """

    def __init__(self, seconds: float = SECONDS) -> None:
        good = isinstance(seconds, int | float) and not isinstance(seconds, bool) and 0 < seconds < float("inf")
        require(good, "Expected a time limit of more than 0 seconds", got=repr(seconds))
        self.seconds = float(seconds)
        self._jobs: list[_Job] = []
        self._lock = threading.Lock()
        self._pool = ThreadPoolExecutor(1, "cf2-again")
        self._closed = False

    def run(self, visitor: str, work: Callable[[GoOn], Any]) -> Any:
        """What `work` returns. It gets a function to call now and then, which raises `Stopped` when it is to end."""
        job = _Job(visitor)
        with self._lock:
            if self._closed:
                raise Stopped("The page is being closed")
            if len(self._jobs) > WAITING:
                busy = f"Busy: one is being explained and {WAITING} wait"
                raise Stopped(busy, do="Try again when one of them has ended.")
            self._jobs.append(job)
            job.future = self._pool.submit(self._do, job, work)
        try:
            return job.future.result()
        except CancelledError:
            raise Stopped("Cancelled") from None

    def cancel(self, visitor: str) -> int:
        """Have all that a visitor asked for end, and say how many that are."""
        with self._lock:
            found = [job for job in self._jobs if job.visitor == visitor]
        for job in found:
            self._cancel(job)
        return len(found)

    def progress(self, visitor: str) -> str:
        """How far the newest of what a visitor asked for has come, in words; empty where there is nothing."""
        with self._lock:
            places = [place for place, job in enumerate(self._jobs) if job.visitor == visitor]
            if not places:
                return ""
            job, ahead = self._jobs[places[-1]], places[-1]
        if ahead:
            return f"Waiting for {ahead} before it; at most {self.seconds:g} s each."
        spent = max(0.0, time.monotonic() - job.until + self.seconds) if job.until < float("inf") else 0.0
        return f"Explaining: {job.runs:,} runs of the model, {spent:.0f} s of at most {self.seconds:g} s."

    def close(self) -> None:
        """Have everything end; nothing can be run afterwards."""
        with self._lock:
            self._closed, found = True, list(self._jobs)
        for job in found:
            self._cancel(job)
        self._pool.shutdown(wait=False)

    def __len__(self) -> int:
        """How many are being made or wait."""
        with self._lock:
            return len(self._jobs)

    def _do(self, job: _Job, work: Callable[[GoOn], Any]) -> Any:
        job.until = time.monotonic() + self.seconds
        try:
            return work(lambda: self._check(job))
        finally:
            self._forget(job)

    def _check(self, job: _Job) -> None:
        job.runs += 1
        if job.cancelled.is_set():
            raise Stopped("Cancelled")
        if time.monotonic() > job.until:
            raise Stopped(f"Stopped after {self.seconds:g} seconds, the limit for one explanation")

    def _cancel(self, job: _Job) -> None:
        job.cancelled.set()
        if job.future.cancel():  # it waits, and is not started any more
            self._forget(job)

    def _forget(self, job: _Job) -> None:
        with self._lock:
            self._jobs.remove(job)
