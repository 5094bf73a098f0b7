"""The widget: what it draws, and that the model answers for what is taken away; in a browser where there is one."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

import pytest

from cf2.errors import CF2Error
from cf2.report import environment
from cf2.report.live import answer, widget_html
from report.explained_toys import ring_and_model
from web.browser import launched, new_page


def test_what_is_taken_away_is_gone_for_the_model() -> None:
    model, data, found = ring_and_model()
    e = found[1]
    row = int(e.units.where("edges")[0])
    a, b = e.units.ids[row].tolist()
    left = data.edge_index[:, [{u, v} != {a, b} for u, v in data.edge_index.t().tolist()]]
    expected = model(data.x, left)[1].softmax(0).tolist()
    said = answer(e, model, data, [row])
    assert said.rows["what is left"].tolist() == pytest.approx(expected, abs=1e-5)
    assert said.changed == (max(range(2), key=expected.__getitem__) != e.prediction)
    assert not answer(e, model, data, []).changed
    with pytest.raises(CF2Error, match="units below"):
        answer(e, model, data, [10**6])


def test_every_unit_can_be_pressed() -> None:
    model, data, found = ring_and_model()
    e = found[1]
    drawn = widget_html(e, answer(e, model, data, []), [], 1, 5)
    assert {int(unit) for unit in re.findall(r'data-unit="(\d+)"', drawn)} == set(range(e.num_units))


def test_turning_and_removing_go_through_the_kernel() -> None:
    pytest.importorskip("anywidget")
    model, data, found = ring_and_model()
    made = found.widget(model, data)
    assert "node 0" in made.html
    made.removed = found[0].selected.nonzero()[0].tolist()
    assert ("cf2-changed" in made.html.partition("</style>")[2]) is found[0].necessary
    made.index = 1
    assert (made.removed, "node 1" in made.html) == ([], True)


def test_without_anywidget_the_extra_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(__import__("sys").modules, "anywidget", None)
    model, data, found = ring_and_model()
    with pytest.raises(CF2Error, match="notebook"):
        found.widget(model, data)


@pytest.mark.browser
def test_clicks_in_a_browser(tmp_path: Path) -> None:
    model, data, found = ring_and_model()
    e = found[1]
    state: dict[str, Any] = {"html": widget_html(e, answer(e, model, data, []), [], 2, 5), "removed": [], "index": 1}
    script = environment().get_template("widget.js").render().replace("export default { render };", "")
    page_text = f"""<!doctype html><meta charset="utf-8"><div id="here"></div><script>{script}
    const state = {json.dumps(state | {"count": 5})};
    const nothing = () => {{}}, set = (name, value) => {{ state[name] = value; }};
    const model = {{get: (name) => state[name], set, save_changes: nothing, on: nothing}};
    render({{model, el: document.getElementById("here")}});</script>"""
    (tmp_path / "page.html").write_text(page_text, encoding="utf-8")
    feature, edge = (int(e.units.where(name)[0]) for name in ("features", "edges"))
    with launched() as browser, new_page(browser) as page:
        page.goto(f"file://{tmp_path}/page.html")
        page.locator(f"input[data-unit='{feature}']").click()
        assert page.evaluate("state.removed") == [feature]
        page.locator(f"g[data-unit='{edge}'] .cf2-hit").click()
        assert page.evaluate("state.removed") == sorted([feature, edge])
        page.get_by_text("Next").click()
        assert page.evaluate("state.index") == 2
