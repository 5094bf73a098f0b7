"""Make the pictures in docs/images anew: `python docs/screenshots.py`. Needs Chromium and the extra `web`."""

from __future__ import annotations

import argparse
import os
import shutil
import tempfile
from dataclasses import replace
from pathlib import Path
from typing import Any
from urllib.parse import urlencode

import numpy as np

import cf2
from cf2.options import Key
from cf2.report.html import write_report
from cf2.report.pictures import draw as draw_graph
from cf2.report.pictures import new_figure
from cf2.report.scene import scene
from cf2.report.words import describe_said
from cf2.results.explanation import Explanation
from cf2.results.explanations import Explanations
from cf2.runs.check import outputs_at
from cf2.runs.source import ModelAndData
from cf2.samples.sources import from_dataset
from cf2.web import build_app
from cf2.web.server import served

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


def molecules() -> tuple[ModelAndData, dict[str, Explanations]]:
    """Test molecules of Mutag₀: why each is what it is, and for the first ones what would have to change."""
    source = from_dataset("mutag0")
    keys = source.keys()[:12]
    context = source.context(keys)
    why = cf2.explain(source.model, source.graphs, keys, effort="quick")
    edits = ("remove", "add", "change")
    asked = {"question": "counterfactual", "edits": edits, "valid": "molecule", "atoms": source.atoms}
    changed = cf2.explain(source.model, source.graphs, keys[:4], effort="quick", **asked)
    named = {"cf2, why": why, "cf2, counterfactual": changed}
    return source, {name: Explanations(f.items, context | {"spec": f.context["spec"]}) for name, f in named.items()}


def typed() -> tuple[ModelAndData, dict[str, Explanations]]:
    """Nodes of a typed graph with planted motifs."""
    source = from_dataset("typed-motifs")
    keys = source.keys()[:8]
    found = cf2.explain(source.model, source.graphs[0], keys, node_type=source.node_type, effort="quick")
    return source, {"cf2": Explanations(found.items, source.context(keys) | {"spec": found.context["spec"]})}


def concepts(source: ModelAndData, e: Explanation, out: Path) -> list[str]:
    """A small picture for each concept, of one explanation; every word in it is what the model says of that graph."""
    whole = scene(e)
    inside = np.flatnonzero(e.selected)
    every, none = np.ones(e.num_units, dtype=bool), np.zeros(e.num_units, dtype=bool)
    draw = np.random.default_rng(3)
    contexts = [~e.selected & (draw.random(e.num_units) < share) for share in (0.3, 0.7)]
    # Of each concept, the title and the units that are there; the first picture is the whole graph.
    rows = {
        "sufficient": [("the graph", every), ("only the set", e.selected)],
        "necessary": [("the graph", every), ("all but the set", ~e.selected)],
        "minimal": [("the set", e.selected), *(("one part less", e.selected & (np.arange(e.num_units) != row))
                    for row in inside[:3])],
        "contexts": [(f"{'with' if there.any() else 'without'} the set", rest | there)
                     for rest in contexts for there in (e.selected, none)],
        "counterfactual": [("the graph", every), ("after the smallest edit", None)],
    }  # fmt: skip
    for name, panels in rows.items():
        figure = new_figure((2.3 * len(panels), 2.1))
        for axes, (title, there) in zip(np.atleast_1d(figure.subplots(1, len(panels))), panels):
            shown, asked = e, there
            if asked is None:
                asking = {"units": "edges", "question": "counterfactual"}
                (shown,) = cf2.explain(source.model, source.graphs[0], [e.key], **asking)
                asked = ~shown.selected
            (values,) = outputs_at(shown, source.model, source.graphs[0], asked[None])
            drawn = scene(shown)
            if there is not None:
                keeps = there[drawn.units]
                drawn = replace(whole, edges=whole.edges[keeps], chosen=whole.chosen[keeps], true=whole.true[keeps],
                                units=whole.units[keeps])  # fmt: skip
            draw_graph(axes, drawn)
            axes.set_title(f"{title}:\n{describe_said(e, values)}", fontsize=9)
        figure.savefig(out / f"concept-{name}.png", dpi=130)
    return [f"concept-{name}" for name in rows]


LAPTOP, PHONE, WIDE = ({"width": w, "height": h} for w, h in ((1366, 768), (390, 844), (1920, 1000)))
# name of the picture: which page, the screen, light or dark, the method, and what is pressed
PAGES: dict[str, tuple[str, dict[str, int], str, str, str]] = {
    "page": ("nodes", LAPTOP, "light", "cf2", "#without"),
    "page-wide": ("nodes", WIDE, "light", "cf2", ""),
    "page-dark": ("nodes", LAPTOP, "dark", "cf2", "#without"),
    "page-phone": ("molecules", PHONE, "light", "cf2, why", ""),
    "page-molecule": ("molecules", LAPTOP, "light", "cf2, why", ""),
    "page-molecule-dark": ("molecules", LAPTOP, "dark", "cf2, why", "#without"),
    "page-edit": ("molecules", LAPTOP, "light", "cf2, counterfactual", "#without"),
    "page-typed": ("typed", LAPTOP, "light", "cf2", ""),
}


def look(browser: Any, address: str, key: str, name: str, out: Path) -> None:
    """One picture of a page."""
    _, screen, scheme, method, press = PAGES[name]
    page = browser.new_page(viewport=screen, color_scheme=scheme)
    page.goto(f"{address}/?{urlencode({'key': key, 'method': method})}")
    page.wait_for_selector(".cf2-now", timeout=120_000)
    page.wait_for_timeout(1500)
    if press:
        page.click(press)
        page.wait_for_timeout(1500)
    page.mouse.move(0, 0)
    page.wait_for_timeout(800)
    page.screenshot(path=out / f"{name}.png")
    page.close()


def photograph(pages: dict[str, tuple[Any, str]], report: Path, key: Key, out: Path) -> list[str]:
    """The report, and every page of `PAGES`: an app and the key of an instance, by the name of what it shows."""
    from playwright.sync_api import sync_playwright

    browser_path = os.environ.get("CF2_CHROMIUM") or shutil.which("chromium") or shutil.which("google-chrome")
    if browser_path is None:
        raise SystemExit("Expected Chromium to be installed, or CF2_CHROMIUM to say where it is.")
    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=browser_path, args=ARGUMENTS)
        page = browser.new_page(viewport={"width": 1280, "height": 1000}, color_scheme="light")
        page.goto(report.as_uri())
        page.fill("#search", str(key))
        page.screenshot(path=out / "report.png", full_page=True)
        for name, screen, scheme in (("report-phone", PHONE, "light"), ("report-dark", LAPTOP, "dark")):
            page = browser.new_page(viewport=screen, color_scheme=scheme)
            page.goto(f"{report.as_uri()}#instances")
            page.wait_for_timeout(500)
            page.screenshot(path=out / f"{name}.png")
        for what, (app, shown) in pages.items():
            with served(app) as address:
                for name in (name for name, view in PAGES.items() if view[0] == what):
                    look(browser, address, shown, name, out)
        browser.close()
    return ["report", "report-phone", "report-dark", *PAGES]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--out", type=Path, default=Path(__file__).parent / "images")
    out: Path = parser.parse_args().out
    out.mkdir(parents=True, exist_ok=True)
    source = from_dataset("ba-shapes")
    found = explanations(source)
    place = best(found)
    found["cf2"].plot(place).savefig(out / "cover.png", dpi=150)
    pictures = concepts(source, found["cf2"][place], out)
    key = found["cf2"][place].key
    atoms, drawn = molecules()
    kinds, known = typed()
    reached = drawn["cf2, counterfactual"].where(necessary=True)
    changed = min(reached, key=lambda e: drawn["cf2, why"].at(e.key).size).key  # the clearest picture
    pages = {
        "nodes": (build_app(source, found, run="ba-shapes"), str(key)),
        "molecules": (build_app(atoms, drawn, run="mutag0"), str(changed)),
        "typed": (build_app(kinds, known, run="typed-motifs"), str(known["cf2"][0].key)),
    }
    with tempfile.TemporaryDirectory() as folder:
        report = write_report(list(found.values()), Path(folder) / "report.html", pictures=INSTANCES)
        names = photograph(pages, report, key, out)
    print(f"Wrote {', '.join(str(out / f'{name}.png') for name in ('cover', *pictures, *names))}")


if __name__ == "__main__":
    main()
