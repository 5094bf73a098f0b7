{% include "live.js" %}
function render({ model, el }) {
  const root = document.createElement("div");
  el.replaceChildren(root);
  const turn = (step) => {
    model.set("index", (model.get("index") + step + model.get("count")) % model.get("count"));
    model.save_changes();
  };
  reach(root, (unit) => {
    if (unit === null) return;
    model.set("removed", toggled(model.get("removed"), unit));
    model.save_changes();
  });
  root.addEventListener("click", (event) => {
    const button = event.target.closest("[data-step]");
    if (button) turn(Number(button.dataset.step));
  });
  const draw = () => fill(root, model.get("html"));
  model.on("change:html", draw);
  draw();
}
export default { render };
