"""The widget: what it draws, and that the model answers for what is taken away; in a browser where there is one."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
import torch
from torch_geometric.data import Data
from torch_geometric.nn import GCN

import cf2
from cf2.errors import CF2Error
from cf2.report.widget import SCRIPT, answer, shown

CHROMIUM = Path("/usr/bin/chromium")


def explained() -> tuple[GCN, Data, cf2.Explanations]:
    torch.manual_seed(0)
    edges = torch.tensor([[0, 1, 1, 2, 2, 3, 3, 4, 4, 0], [1, 0, 2, 1, 3, 2, 4, 3, 0, 4]])
    data, model = Data(x=torch.randn(5, 3), edge_index=edges), GCN(3, 8, 2, 2).eval()
    return model, data, cf2.explain(model, data, range(5), units=("edges", "features"))


def test_what_is_taken_away_is_gone_for_the_model() -> None:
    model, data, found = explained()
    e = found[1]
    row = int(e.units.where("edges")[0])
    a, b = e.units.ids[row].tolist()
    left = data.edge_index[:, [{u, v} != {a, b} for u, v in data.edge_index.t().tolist()]]
    expected = model(data.x, left)[1].softmax(0).tolist()
    said = answer(e, model, data, [row])
    assert said["values"] == pytest.approx(expected, abs=1e-5)
    assert said["kept"] == (max(range(2), key=expected.__getitem__) == e.prediction)
    assert answer(e, model, data, [])["kept"]
    with pytest.raises(CF2Error, match="units below"):
        answer(e, model, data, [10**6])


def test_every_unit_is_an_edge_or_a_button() -> None:
    _, _, found = explained()
    e = found[1]
    drawn = shown(e)
    edges = {unit for _, _, unit in drawn["edges"] if unit >= 0}
    assert edges | {unit for unit, _ in drawn["others"]} == set(range(e.num_units))
    assert drawn["chosen"] == e.selected.nonzero()[0].tolist()
    json.dumps(drawn)


def test_turning_and_removing_go_through_the_kernel() -> None:
    pytest.importorskip("anywidget")
    model, data, found = explained()
    made = found.widget(model, data)
    assert made.picture == shown(found[0])
    made.removed = shown(found[0])["chosen"]
    assert made.said["kept"] != found[0].necessary
    made.index = 1
    assert (made.removed, made.picture["title"]) == ([], shown(found[1])["title"])


def test_without_anywidget_the_extra_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(__import__("sys").modules, "anywidget", None)
    model, data, found = explained()
    with pytest.raises(CF2Error, match="notebook"):
        found.widget(model, data)


def test_clicks_in_a_browser(tmp_path: Path) -> None:
    playwright = pytest.importorskip("playwright.sync_api")
    if not CHROMIUM.exists():
        pytest.skip("no browser")
    model, data, found = explained()
    state = {
        "picture": shown(found[1]),
        "said": answer(found[1], model, data, []),
        "removed": [],
        "index": 1,
        "count": 5,
    }
    script = SCRIPT.read_text().replace("export default { render };", "")
    page_text = f"""<!doctype html><meta charset="utf-8"><div id="here"></div><script>{script}
    const state = {json.dumps(state)}, heard = {{}};
    const change = (n, v) => {{ state[n] = v; (heard["change:" + n] || []).forEach((f) => f()); }};
    const model = {{get: (n) => state[n], set: change,
      save_changes: () => {{}}, on: (n, f) => {{ (heard[n] = heard[n] || []).push(f); }}}};
    render({{model, el: document.getElementById("here")}});</script>"""
    (tmp_path / "page.html").write_text(page_text, encoding="utf-8")
    with playwright.sync_playwright() as started:
        browser = started.chromium.launch(executable_path=str(CHROMIUM), args=["--no-sandbox"])
        page = browser.new_page()
        wrong: list[str] = []
        page.on("pageerror", lambda error: wrong.append(str(error)))
        page.goto(f"file://{tmp_path}/page.html")
        unit = shown(found[1])["others"][0][0]
        page.locator(f"button[data-unit='{unit}']").click()
        assert page.evaluate("state.removed") == [unit]
        edge = next(unit for _, _, unit in shown(found[1])["edges"] if unit >= 0)
        page.locator(f"line[data-unit='{edge}']").first.click(force=True)
        assert page.evaluate("state.removed") == sorted([unit, edge])
        page.get_by_text("Next").click()
        assert page.evaluate("state.index") == 2
        page.screenshot(path=str(tmp_path / "widget.png"))
        browser.close()
    assert not wrong
