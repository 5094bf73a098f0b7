"""Make the pictures in docs/images anew: `python docs/screenshots.py`. Needs Chromium and the extra `web`."""

from __future__ import annotations

import argparse
import logging
import os
import shutil
import tempfile
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import cf2
from cf2.paper.sources import from_dataset
from cf2.report.html import write_report
from cf2.report.scene import scene
from cf2.results.explanations import Explanations
from cf2.runs.model_and_data import ModelAndData
from cf2.spec import Key
from cf2.web import build_app

METHODS = ("cf2", "cf2-relaxed", "gnnexplainer")
INSTANCES = 40
ARGUMENTS = ("--no-sandbox", "--disable-gpu", "--no-first-run", "--disable-background-networking")


def explanations(source: ModelAndData) -> dict[str, Explanations]:
    """The first test nodes of BA-Shapes, explained by three methods."""
    keys = source.keys()[:INSTANCES]
    context = source.context(keys)
    found = {}
    for method in METHODS:
        settings = {"k": 6} if method == "gnnexplainer" else {}
        items = cf2.explain(source.model, source.graphs[0], keys, method=method, **settings).items
        found[method] = Explanations(items, context)
    return found


def best(found: dict[str, Explanations]) -> int:
    """The instance that makes the clearest picture: close to the known truth, and little else around it."""
    ours = found["cf2"]

    def clarity(place: int) -> tuple[float, int]:
        overlap = cf2.metrics.truth([ours[place]], ours.context["truth"])
        return (overlap["f1"], -len(scene(ours[place]).nodes))

    return max((p for p, e in enumerate(ours) if e.sufficient and e.necessary), key=clarity)


@contextmanager
def served(app: Any) -> Iterator[str]:
    from werkzeug.serving import make_server

    server = make_server("127.0.0.1", 0, app.server, threaded=True)
    thread = threading.Thread(target=server.serve_forever, daemon=True)
    thread.start()
    try:
        yield f"http://127.0.0.1:{server.server_port}"
    finally:
        server.shutdown()
        thread.join()
        server.server_close()


def photograph(source: ModelAndData, found: dict[str, Explanations], key: Key, out: Path) -> None:
    """The report and the page, each as a laptop shows it."""
    from playwright.sync_api import sync_playwright

    browser_path = os.environ.get("CF2_CHROMIUM") or shutil.which("chromium") or shutil.which("google-chrome")
    if browser_path is None:
        raise SystemExit("Expected Chromium to be installed, or CF2_CHROMIUM to say where it is.")
    with sync_playwright() as playwright, tempfile.TemporaryDirectory() as folder:
        browser = playwright.chromium.launch(executable_path=browser_path, args=ARGUMENTS)
        page = browser.new_page(viewport={"width": 1280, "height": 1000}, color_scheme="light")
        page.goto(write_report(list(found.values()), Path(folder) / "report.html", pictures=12).as_uri())
        page.fill("#search", str(key))
        page.screenshot(path=out / "report.png", full_page=True)
        with served(build_app(source, found)) as address:
            page = browser.new_page(viewport={"width": 1366, "height": 768}, color_scheme="light")
            page.goto(address)
            page.locator(f"#list button[aria-label^='node {key}:']").click()
            page.wait_for_function(f"document.querySelector('#now')?.dataset.instance === '{key} cf2'")
            page.click("#without")
            page.wait_for_function("!document.querySelector('#now').innerText.includes('unchanged')")
            page.mouse.move(0, 0)
            page.wait_for_timeout(800)
            page.screenshot(path=out / "page.png")
        browser.close()


def main() -> None:
    logging.getLogger("werkzeug").setLevel(logging.ERROR)
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--out", type=Path, default=Path(__file__).parent / "images")
    out: Path = parser.parse_args().out
    out.mkdir(parents=True, exist_ok=True)
    source = from_dataset("ba-shapes")
    found = explanations(source)
    place = best(found)
    found["cf2"].plot(place).savefig(out / "cover.png", dpi=150)
    # The list shows its first page, so the instance goes to the front.
    first = {m: Explanations((f[place], *f[:place], *f[place + 1 :]), f.context) for m, f in found.items()}
    photograph(source, first, found["cf2"][place].key, out)
    print(f"Wrote {', '.join(str(out / name) for name in ('cover.png', 'report.png', 'page.png'))}")


if __name__ == "__main__":
    main()
