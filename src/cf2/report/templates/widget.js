const SVG = "http://www.w3.org/2000/svg";
const make = (name, attributes, text) => {
  const element = name === "svg" || attributes.svg ? document.createElementNS(SVG, name) : document.createElement(name);
  for (const [key, value] of Object.entries(attributes)) if (key !== "svg") element.setAttribute(key, value);
  if (text !== undefined) element.textContent = text;
  return element;
};
function render({ model, el }) {
  const draw = () => {
    const picture = model.get("picture"), said = model.get("said"), removed = new Set(model.get("removed"));
    const chosen = new Set(picture.chosen), root = make("div", { style: "display:flex;gap:1rem;flex-wrap:wrap;font-size:14px" });
    const toggle = (unit) => {
      removed.has(unit) ? removed.delete(unit) : removed.add(unit);
      model.set("removed", [...removed].sort((a, b) => a - b));
      model.save_changes();
    };
    const reach = (element, unit, text) => {
      element.setAttribute("role", "button");
      element.setAttribute("tabindex", "0");
      element.setAttribute("aria-pressed", removed.has(unit));
      element.setAttribute("aria-label", text);
      element.dataset.unit = unit;
      element.addEventListener("click", () => toggle(unit));
      element.addEventListener("keydown", (event) => { if (event.key === "Enter" || event.key === " ") { event.preventDefault(); toggle(unit); } });
      return element;
    };
    const svg = make("svg", { viewBox: "-20 -20 440 440", width: 400, style: "max-width:100%;flex:1 1 300px" });
    const at = (node) => [picture.nodes[node][0] * 400, 400 - picture.nodes[node][1] * 400];
    for (const [a, b, unit] of picture.edges) {
      const [x1, y1] = at(a), [x2, y2] = at(b), gone = removed.has(unit);
      const look = { svg: 1, x1, y1, x2, y2, stroke: gone ? "#999" : chosen.has(unit) ? "#D55E00" : "#8a8f98", "stroke-width": chosen.has(unit) ? 4 : 2, "stroke-dasharray": gone ? "3 5" : "none" };
      svg.append(make("line", look));
      if (unit >= 0) svg.append(reach(make("line", { ...look, stroke: "transparent", "stroke-width": 16, style: "cursor:pointer" }), unit, `edge ${picture.nodes[a][2]} to ${picture.nodes[b][2]}`));
    }
    picture.nodes.forEach(([, , label], node) => {
      const [cx, cy] = at(node);
      svg.append(make("circle", { svg: 1, cx, cy, r: 9, fill: picture.targets.includes(node) ? "#0072B2" : "#d5d9e0", "pointer-events": "none" }));
      svg.append(make("text", { svg: 1, x: cx, y: cy + 4, "text-anchor": "middle", "font-size": 11, fill: picture.targets.includes(node) ? "white" : "black", "pointer-events": "none" }, String(label).slice(0, 5)));
    });
    const side = make("div", { style: "flex:1 1 260px" });
    side.append(make("strong", {}, picture.title));
    side.append(make("p", { class: "cf2-said", role: "status", style: `padding:.4rem;border-left:4px solid ${said.kept ? "#0072B2" : "#E69F00"}` }, `${said.text} ${removed.size ? (said.kept ? "It keeps its answer." : "Its answer has changed.") : ""}`));
    const list = make("ul", { style: "list-style:none;padding:0;margin:.3rem 0" });
    for (const [tone, text] of picture.verdicts) list.append(make("li", {}, `${{ good: "✓", bad: "✗" }[tone] || "·"} ${text}`));
    side.append(list);
    for (const [unit, text] of picture.others) side.append(reach(make("button", { style: `margin:2px;${chosen.has(unit) ? "font-weight:bold;" : ""}${removed.has(unit) ? "text-decoration:line-through" : ""}` }, text), unit, text));
    const pager = make("p", {});
    for (const [text, step] of [["Previous", -1], ["Next", 1]]) {
      const button = make("button", {}, text);
      button.addEventListener("click", () => { model.set("index", (model.get("index") + step + model.get("count")) % model.get("count")); model.save_changes(); });
      pager.append(button, " ");
    }
    pager.append(`${model.get("index") + 1} of ${model.get("count")}`);
    side.append(pager);
    root.append(svg, side);
    el.replaceChildren(root);
  };
  for (const name of ["picture", "said", "removed"]) model.on(`change:${name}`, draw);
  draw();
}
export default { render };
