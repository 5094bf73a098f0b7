/* What the page and the widget share. A press, by mouse or keyboard, on what stands for a unit or a node is told to
   `act(unit, node)`; both are numbers or null. */
const reach = (root, act) => {
  const number = (part, name) => (part && name in part.dataset ? Number(part.dataset[name]) : null);
  const press = (event) => {
    const part = event.target.closest("[data-unit], [data-node]");
    if (part && root.contains(part)) act(number(part, "unit"), number(part, "node"), event);
  };
  root.addEventListener("click", press);
  root.addEventListener("keydown", (event) => {
    if ((event.key !== "Enter" && event.key !== " ") || !event.target.matches("svg [data-unit]")) return;
    event.preventDefault();
    press(event);
  });
};
/* New HTML for an element, where what has the focus keeps it. */
const fill = (element, html) => {
  const focused = element.contains(document.activeElement) ? document.activeElement : null;
  const tag = focused && focused.dataset.unit !== undefined ? `${focused.tagName}[data-unit="${focused.dataset.unit}"]` : "";
  element.innerHTML = html;
  if (tag) element.querySelector(tag)?.focus();
};
const toggled = (units, unit) => (units.includes(unit) ? units.filter((other) => other !== unit) : [...units, unit].sort((a, b) => a - b));
