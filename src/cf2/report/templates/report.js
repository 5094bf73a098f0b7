"use strict";
(() => {
{% include "listing.js" %}
  const { rows, statuses, edits, numbers } = JSON.parse(document.getElementById("data").textContent);
  const cards = new Map([...document.querySelectorAll("#cards > article")].map((card) => [card.dataset.key, card]));
  const PAGE = 12;
  const idOf = (row) => row.key.join("-");
  let holds = null, page = 0, order = "", shown = rows;

  const select = () => {
    const method = byId("method") ? byId("method").value : "";
    const own = rows.filter((r) => (!method || r.method === method) && (holds === null || r.holds.includes(holds)));
    shown = listed(own, byId("show").value, order, byId("search").value);
    page = 0;
    draw();
  };
  const heads = [...document.querySelectorAll(".list th button")].map((button) => button.textContent);
  const cell = (line, text, kind) => {
    const made = line.insertCell();
    made.dataset.head = heads[line.cells.length - 1];
    if (kind) made.className = kind;
    made.textContent = text;
    return made;
  };
  const yes = (line, value) => cell(line, value === null ? "–" : value ? "yes" : "no", value === false ? "no" : "");
  const drawRow = (body, r) => {
    const line = body.insertRow();
    const first = cell(line, "");
    const holder = cards.has(idOf(r)) ? first.appendChild(document.createElement("a")) : first;
    if (holder !== first) holder.href = "#instance-" + idOf(r);
    holder.textContent = r.key.join(", ");
    if (byId("method")) cell(line, r.method);
    cell(line, r.says);
    if (!numbers) {
      cell(line, r.p.toFixed(2));
      cell(line, r.true === null ? "–" : r.true, r.wrong ? "no" : "");
    }
    cell(line, r.size);
    if (edits) cell(line, r.edits || "–");
    yes(line, r.sufficient);
    yes(line, r.necessary);
    cell(line, r.status).title = statuses[r.status] || "";
  };
  const draw = () => {
    const body = byId("rows");
    body.replaceChildren();
    turned(shown, rows, page, PAGE, "explanations")[1].forEach((r) => drawRow(body, r));
    document.querySelectorAll(".list th").forEach((head) => {
      const column = head.firstElementChild.dataset.column;
      const here = order.slice(0, -1) === column;
      head.setAttribute("aria-sort", here ? (order.endsWith("-") ? "descending" : "ascending") : "none");
    });
    arrange();
  };
  const arrange = () => {
    const keys = new Set(shown.map(idOf).filter((key) => cards.has(key)));
    cards.forEach((card, key) => { card.hidden = !keys.has(key); });
    const holder = byId("cards");
    keys.forEach((key) => holder.appendChild(cards.get(key)));
    byId("none").hidden = keys.size > 0 || cards.size === 0;
  };
  byId("listing").hidden = false;
  byId("controls").addEventListener("submit", (event) => event.preventDefault());
  ["show", "method"].forEach((id) => byId(id) && byId(id).addEventListener("change", select));
  byId("search").addEventListener("input", select);
  byId("sort").addEventListener("change", () => { order = byId("sort").value; select(); });
  document.querySelectorAll(".list th button").forEach((button) => button.addEventListener("click", () => {
    const column = button.dataset.column;
    order = order === column + "+" ? column + "-" : column + "+";
    const known = [...byId("sort").options].some((option) => option.value === order);
    byId("sort").value = known ? order : "";
    select();
  }));
  document.querySelectorAll("[data-holds]").forEach((button) => button.addEventListener("click", () => {
    const wanted = Number(button.dataset.holds);
    holds = holds === wanted ? null : wanted;
    document.querySelectorAll("[data-holds]").forEach((other) => other.setAttribute("aria-pressed", Number(other.dataset.holds) === holds));
    select();
    if (holds !== null) byId("instances").scrollIntoView();
  }));
  byId("previous").addEventListener("click", () => { page -= 1; draw(); });
  byId("next").addEventListener("click", () => { page += 1; draw(); });
  select();
})();
