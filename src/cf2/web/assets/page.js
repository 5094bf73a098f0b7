"use strict";
/* What only a browser can do: the address and its history, undo and redo, keys, and whether the page is dark. */
(() => {
  const dark = window.matchMedia("(prefers-color-scheme: dark)");
  const set = (id, data) => window.dash_clientside.set_props(id, { data });
  const scheme = () => (dark.matches ? "dark" : "light");
  const byId = (id) => document.getElementById(id);
  let count = 0, trail = [], at = -1, first = "";

  const stamped = (address) => ({ address, number: ++count });
  const instance = (address) => {
    const parts = new URLSearchParams(address);
    return JSON.stringify([parts.get("key"), parts.get("method")]);
  };
  const step = (by) => {
    if (at + by < 0 || at + by >= trail.length) return window.dash_clientside.no_update;
    at += by;
    return stamped(trail[at]);
  };

  /* What is above or below the graph changes its room; then all of the graph is shown again. */
  let watched = null;
  const watch = () => {
    const holder = byId("cytoscape");
    if (!holder || holder === watched) return;
    watched = holder;
    new ResizeObserver(() => {
      const cy = holder._cyreg && holder._cyreg.cy;
      if (!cy || !cy.elements().length) return;
      cy.resize();
      cy.fit(undefined, 24);
    }).observe(holder);
  };

  window.dash_clientside = Object.assign({}, window.dash_clientside, {
    cf2: {
      start: () => [stamped(window.location.search), scheme()],
      /* Has a state of the page stand in the address, and remembers it for "Undo". */
      record: (address) => {
        watch();
        if (!address) return [true, true];
        if (!first) first = address;
        if (at < 0 || instance(trail[at]) !== instance(address)) [trail, at] = [[address], 0];
        else if (trail[at] !== address) {
          trail = [...trail.slice(0, at + 1), address];
          at += 1;
        }
        if (window.location.search !== address) {
          const how = new URLSearchParams(window.location.search).has("key") ? "pushState" : "replaceState";
          window.history[how](null, "", address);
        }
        return [at === 0, at === trail.length - 1];
      },
      step: () => {
        const cause = window.dash_clientside.callback_context.triggered_id;
        return cause === "undo" ? step(-1) : cause === "redo" ? step(1) : window.dash_clientside.no_update;
      },
    },
  });

  dark.addEventListener("change", () => set("scheme", scheme()));
  window.addEventListener("popstate", () => {
    const address = window.location.search || first;
    set(at >= 0 && instance(trail[at]) === instance(address) ? "restored" : "wanted", stamped(address));
  });

  /* The buttons of instances come and go with the list. As inputs of a callback, each new list would call it again, and a
     press that is on its way would be overtaken and lost. */
  document.addEventListener("click", (event) => {
    const button = event.target instanceof Element ? event.target.closest("[data-pick]") : null;
    if (button) set("picked", { key: button.dataset.pick, number: ++count });
  });

  const press = (id) => {
    const button = byId(id);
    if (button && !button.disabled) button.click();
  };
  const typing = (element) => element.closest("input:not([type=radio]):not([type=checkbox]), textarea, select, [role=listbox]");
  document.addEventListener("keydown", (event) => {
    const target = event.target instanceof Element ? event.target : document.body;
    const letter = event.key.toLowerCase();
    if ((event.ctrlKey || event.metaKey) && !event.altKey && (letter === "z" || letter === "y")) {
      if (typing(target) && target.value) return; // the field's own text is taken back
      event.preventDefault();
      press(letter === "y" || event.shiftKey ? "redo" : "undo");
    } else if (!event.ctrlKey && !event.metaKey && !event.altKey && (event.key === "ArrowLeft" || event.key === "ArrowRight")) {
      if (target.closest("input, textarea, select, [role=listbox], .dash-dropdown")) return;
      event.preventDefault();
      press(event.key === "ArrowLeft" ? "instance-previous" : "instance-next");
    }
  });
})();
