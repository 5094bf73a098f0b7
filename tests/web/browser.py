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

REMOVED = "document.querySelector('[data-part=removed]')?.dataset.count"  # how many units are gone
PATIENCE = 120.0  # seconds; a machine may be busy with other work, and whoever waits looks again and again
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


@pytest.fixture(name="browser", scope="module")
def browser_of_a_module() -> Iterator[Any]:
    """A real browser for the tests of a module."""
    with launched() as opened:
        yield opened


@contextmanager
def new_page(browser: Any, **options: Any) -> Iterator[Any]:
    """A page; on leaving, no error may have been seen on its console and no foreign host been asked.

    What the content security policy forbids is an error on the console, too.
    """
    context = browser.new_context(**({"viewport": {"width": 1366, "height": 768}} | options))
    context.set_default_timeout(PATIENCE * 1000)
    page = context.new_page()
    problems: list[str] = []
    refused = "responded with a status of 400"  # which the page says in words
    page.on("console", lambda m: problems.append(m.text) if m.type == "error" and refused not in m.text else None)
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
    page.wait_for_selector(".cf2-now")
    page.wait_for_selector("#list button")


def says(page: Any, expected: np.ndarray) -> None:
    """Wait until the page shows these probabilities."""
    text = ",".join(f"{p:.3f}" for p in expected.tolist())
    shown = "document.querySelector('.cf2-now').dataset.probabilities.split(',').map(p => Number(p).toFixed(3)).join()"
    until(page, f"text => {shown} === text", text)


def shows(page: Any, key: int, removed: int = 0, method: str = "cf2") -> None:
    """Wait until the page shows an instance with so many units removed."""
    said = f"document.querySelector('.cf2-now')?.dataset.instance === '{key} {method}'"
    until(page, f"{said} && {REMOVED} === '{removed}'")


def pick(page: Any, key: int, method: str = "cf2") -> None:
    """Open an instance by the list, and wait until it is drawn anew: a click while that happens would be lost."""
    page.fill("#search", str(key))
    page.evaluate("document.querySelector('.cf2-now').dataset.stale = 'yes'")
    page.locator(f"#list button[aria-label^='node {key}:']").click()
    until(page, "!document.querySelector('.cf2-now')?.dataset.stale")
    shows(page, key, method=method)


def press(page: Any, unit: int) -> None:
    """Click an edge of the picture, by the row of its unit; to playwright a line straight down has no extent."""
    box = "e => { const b = e.getBoundingClientRect(); return [b.x + b.width / 2, b.y + b.height / 2]; }"
    page.mouse.click(*page.locator(f"#picture g[data-unit='{unit}'] .cf2-hit").evaluate(box))
