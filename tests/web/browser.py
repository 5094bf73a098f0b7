"""A real browser for tests, and the page on a free port; on leaving a page, no error may have been seen."""

from __future__ import annotations

import os
import shutil
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import numpy as np
import pytest

GRAPH = "document.querySelector('#cytoscape')._cyreg?.cy"
REMOVED = "document.querySelector('[data-part=removed]')?.dataset.count"  # how many units are gone
PATIENCE = 600.0  # seconds; a machine may be busy with other work, and whoever waits looks again and again
ARGUMENTS = [
    "--no-sandbox",
    "--disable-gpu",
    "--disable-quic",
    "--no-first-run",
    "--disable-background-networking",
    "--disable-component-update",
    "--disable-sync",
]


def chromium() -> str:
    """Where the system's Chromium is; skips the test if there is none."""
    names = ("chromium", "chromium-browser", "google-chrome", "google-chrome-stable")
    found = os.environ.get("CF2_CHROMIUM") or next(filter(None, map(shutil.which, names)), None)
    if found is None:
        pytest.skip("no Chromium on this machine; install one or set CF2_CHROMIUM to its path")
    return found


@contextmanager
def launched() -> Iterator[Any]:
    """A real browser."""
    path = chromium()
    sync_api = pytest.importorskip("playwright.sync_api", reason="playwright is not installed")
    with sync_api.sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=path, args=ARGUMENTS, timeout=PATIENCE * 1000)
        try:
            yield browser
        finally:
            browser.close()


@contextmanager
def new_page(browser: Any, **options: Any) -> Iterator[Any]:
    """A page; on leaving, no error may have been seen on its console and no foreign host been asked.

    What the content security policy forbids is an error on the console, too.
    """
    context = browser.new_context(**({"viewport": {"width": 1366, "height": 768}} | options))
    context.set_default_timeout(PATIENCE * 1000)
    page = context.new_page()
    problems: list[str] = []
    page.on("console", lambda m: problems.append(m.text) if m.type == "error" else None)
    page.on("pageerror", lambda error: problems.append(str(error)))
    page.on("dialog", lambda dialog: (problems.append("dialog"), dialog.dismiss()))
    page.on("request", lambda r: None if _local(r.url) else problems.append(f"asked {r.url}"))
    try:
        yield page
        assert problems == []
    finally:
        context.close()


def until(page: Any, expression: str, argument: Any = None, *, again: Callable[[], None] | None = None) -> None:
    """Wait until a JavaScript expression, or a function of the argument, holds; `again` is done every five seconds.

    Playwright's own `wait_for_function` evaluates text inside of the page, which the page's policy forbids.
    """
    started = pressed = time.monotonic()
    while not page.evaluate(expression, argument):
        now = time.monotonic()
        assert now - started < PATIENCE, f"waited in vain for {expression}"
        if again is not None and now - pressed > 5:
            again()
            pressed = now
        page.wait_for_timeout(50)


def _local(url: str) -> bool:
    return url.startswith(("http://127.0.0.1:", "file://", "data:", "blob:"))


@contextmanager
def opened(browser: Any, app: Any, **options: Any) -> Iterator[Any]:
    """A page that shows the app, drawn and answered."""
    from cf2.web.server import served

    with served(app) as address, new_page(browser, **options) as page:
        page.goto(address)
        drawn(page)
        yield page


def drawn(page: Any) -> None:
    """Wait until the page is there."""
    page.wait_for_selector("#now")
    until(page, f"{GRAPH}?.edges().length > 0 && document.querySelectorAll('#units input').length > 0")


def says(page: Any, expected: np.ndarray) -> None:
    """Wait until the page shows these probabilities."""
    text = ",".join(f"{p:.3f}" for p in expected.tolist())
    shown = "document.querySelector('#now').dataset.probabilities.split(',').map(p => Number(p).toFixed(3)).join()"
    until(page, f"text => {shown} === text", text)


def click(page: Any, part: str) -> None:
    """Click an edge or a node of the graph, 'edges("[unit = 3]")', once it has come to rest."""
    place = f"""async () => {{
        const place = () => {{
            const part = {GRAPH}.{part}, box = document.querySelector('#cytoscape').getBoundingClientRect();
            const ends = part.isNode() ? [part, part] : [part.source(), part.target()];
            const [a, b] = ends.map(node => node.renderedPosition());
            return [box.x + (a.x + b.x) / 2, box.y + (a.y + b.y) / 2];
        }};
        for (let before = [], still = 0; ;) {{
            await new Promise(requestAnimationFrame);
            const now = place();
            still = now.join() === before.join() ? still + 1 : 0;
            if (still === 10) return now;
            before = now;
        }}
    }}"""
    page.mouse.click(*page.evaluate(place))
