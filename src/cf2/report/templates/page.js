const PAGE = 20;
let shown = null, rows = [], page = 0, trail = [], at = -1, compared = "", latest = 0;

const asked = async (path, body) => {
  const sent = body === undefined ? {} : { method: "POST", headers: { "Content-Type": "application/json" }, body: JSON.stringify(body) };
  const response = await fetch(path, sent);
  if (!response.ok) throw new Error(await response.text());
  return (response.headers.get("Content-Type") || "").includes("json") ? response.json() : response.text();
};
const numbers = (text) => (text.match(/[0-9]+/g) || []).map(Number);
const number = (id) => (byId(id).value === "" ? null : Number(byId(id).value));
const make = (tag, attributes, ...children) => {
  const made = Object.assign(document.createElement(tag), attributes);
  made.append(...children);
  return made;
};

/* -- the state: what is shown, its address, and what can be undone */

const parts = () => ({ key: shown.key, method: shown.method, removed: shown.removed, edits: shown.edits });

/* Ask for a state and show it; the address becomes a new one, or another ("replaceState"). The answer to an older
   question is dropped. */
const go = async (wanted, how = "pushState", note = "address-note") => {
  const mine = ++latest;
  try {
    const near = byId("near").value.trim();
    const state = await asked("/state", { ...wanted, near: near ? numbers(near).concat(-1) : [] });
    if (mine !== latest) return;
    byId(note).textContent = "";
    draw(state, how);
  } catch (error) {
    if (mine === latest) byId(note).textContent = error.message;
  }
};
const change = (part, note) => go({ ...parts(), ...part }, "pushState", note);

const draw = (state, how) => {
  const same = shown && shown.key === state.key && shown.method === state.method;
  const listing = !shown || shown.first !== state.first;
  shown = state;
  if (!same) [trail, at] = [[state.address], 0];
  else if (trail[at] !== state.address) {
    trail = [...trail.slice(0, at + 1), state.address];
    at += 1;
  }
  if (window.location.search !== state.address) window.history[how](null, "", state.address);
  byId("undo").disabled = at <= 0;
  byId("redo").disabled = at >= trail.length - 1;
  byId("prediction").textContent = state.prediction;
  for (const name of ["verdict", "picture", "answer", "units", "edited"]) fill(byId(name), state[name]);
  byId("caption").textContent = state.caption;
  byId("unlisted").textContent = state.unlisted;
  byId("without").textContent = state.without;
  byId("only").hidden = state.edits_only;
  byId("types").replaceChildren(...state.types.map(([colour, name]) => {
    const dot = make("i", { className: "k dot" });
    dot.style.background = colour;
    return make("span", { className: "type" }, dot, name);
  }));
  byId("method").replaceChildren(...state.methods.map((name) => make("label", {},
    make("input", { type: "radio", name: "method", value: name, checked: name === state.first, onchange: () => go({ key: shown.key, method: name }) }), name)));
  const answer = state.answers.indexOf(state.method);
  byId("answers").hidden = state.answers.length < 2;
  byId("answer-count").textContent = `Answer ${answer + 1} of ${state.answers.length}`;
  byId("answer-previous").disabled = answer <= 0;
  byId("answer-next").disabled = answer + 1 >= state.answers.length;
  if (listing) load();
  else if (!same) list(true);
  if (compared !== state.key) compare_methods();
};
const compare_methods = async () => {
  compared = shown.key;
  fill(byId("comparison"), await asked(`/comparison?key=${encodeURIComponent(shown.key)}`));
};
const undo = (by) => {
  if (at + by < 0 || at + by >= trail.length) return;
  at += by;
  go({ address: trail[at] });
};

/* -- the list of instances */

const load = async () => {
  rows = await asked(`/listing?method=${encodeURIComponent(shown.first)}`);
  list(true);
};
const chosen = () => listed([...rows], byId("show").value, byId("sort").value, byId("search").value);
const list = (follow) => {
  const found = chosen();
  if (follow === true) page = Math.floor(found.findIndex((r) => r.id === shown.key) / PAGE);
  let part;
  [page, part] = turned(found, rows, page, PAGE, "instances");
  byId("list").replaceChildren(...part.map(entry));
};
const entry = (r) => {
  const marks = r.marks.map(([letter, good]) => make("span", { className: good ? "cf2-yes" : "cf2-no" }, letter + (good ? "✓" : "✗")));
  const button = make("button", { className: `entry${r.id === shown.key ? " current" : ""}${r.wrong ? " wrong" : ""}` },
    make("span", { className: "name" }, r.name), make("span", { className: "said" }, r.says),
    make("span", { className: "marks" }, ...marks), make("span", { className: "size" }, String(r.size)));
  button.setAttribute("aria-label", r.label);
  button.setAttribute("aria-current", r.id === shown.key);
  button.onclick = () => pick(r.id);
  return make("li", {}, button);
};
const pick = (key) => go({ key, method: shown.first });
const step = (by) => {
  const keys = chosen().map((r) => r.id), here = keys.indexOf(shown.key);
  const next = here < 0 ? keys[0] : keys[Math.min(Math.max(here + by, 0), keys.length - 1)];
  if (next !== undefined && next !== shown.key) pick(next);
};
for (const id of ["show", "sort", "search"]) byId(id).addEventListener("input", () => { page = 0; list(); });
byId("search").addEventListener("keydown", (event) => {
  const found = chosen();
  if (event.key === "Enter" && found.length === 1) pick(found[0].id);
});

/* -- what the user removes, adds and changes */

/* Without a model, a press says what it needs, where it was pressed. */
const refused = (element) => {
  const why = byId("why");
  if (!why) return false;
  (element.closest(".buttons, fieldset, details, .canvas") || element).after(why);
  why.hidden = false;
  why.scrollIntoView({ block: "nearest" });
  return true;
};
const toggle = (unit, node, event) => {
  if (refused(event.target)) {
    event.preventDefault();
    return;
  }
  if (node !== null) {
    // The first press begins an edge, the second one ends it.
    const first = byId("tail").value === "" || byId("head").value !== "";
    byId("node").value = node;
    byId(first ? "tail" : "head").value = node;
    if (first) byId("head").value = "";
  }
  if (unit !== null) change({ removed: toggled(shown.removed, unit) });
};
for (const id of ["picture", "units", "edited"]) reach(byId(id), toggle);
const search = async (what) => {
  const buttons = ["again", "another", "find"].map(byId);
  buttons.forEach((button) => { button.hidden = true; });
  byId("cancel").hidden = false;
  byId("search-note").textContent = "";
  byId("search-progress").textContent = "Explaining …";
  const ticking = setInterval(async () => {
    const said = await asked("/progress");
    if (said && !byId("cancel").hidden) byId("search-progress").textContent = said;
  }, 500);
  const key = shown.key;
  const sorts = [...document.querySelectorAll("#sorts input:checked")].map((box) => box.value);
  const settings = { alpha: number("alpha"), lambda: number("lambda"), aim: number("aim"), sorts, valid: Boolean(byId("valid")?.checked) };
  try {
    const found = await asked("/search", { what, key, method: shown.method, ...settings });
    byId("search-note").textContent = found.note;
    compared = found.method ? "" : compared;
    if (found.method && shown.key === key) await go({ key, method: found.method });
  } catch (error) {
    byId("search-note").textContent = error.message;
  }
  clearInterval(ticking);
  byId("search-progress").textContent = "";
  byId("cancel").hidden = true;
  buttons.forEach((button) => { button.hidden = false; });
};
const download = (href, name) => make("a", { href, download: name }).click();
const saved = (kind) => `/save${shown.address}&kind=${kind}`;
const png = async () => {
  const response = await fetch(saved("svg"));
  const name = response.headers.get("Content-Disposition").match(/"(.*)\.svg"/)[1];
  const image = new Image();
  image.src = URL.createObjectURL(new Blob([await response.text()], { type: "image/svg+xml" }));
  await image.decode();
  const canvas = make("canvas", { width: 2 * image.width, height: 2 * image.height }), pen = canvas.getContext("2d");
  pen.fillStyle = "#fff";
  pen.fillRect(0, 0, canvas.width, canvas.height);
  pen.drawImage(image, 0, 0, canvas.width, canvas.height);
  URL.revokeObjectURL(image.src);
  canvas.toBlob((blob) => download(URL.createObjectURL(blob), `${name}.png`));
};
const edit = (...made) => change({ edits: [...shown.edits, made] }, "edit-note");
const presses = {
  only: () => change({ do: "only" }),
  without: () => change({ do: "without" }),
  restore: () => change({ do: "restore" }),
  undo: () => undo(-1),
  redo: () => undo(1),
  previous: () => { page -= 1; list(); },
  next: () => { page += 1; list(); },
  "instance-previous": () => step(-1),
  "instance-next": () => step(1),
  "answer-previous": () => go({ key: shown.key, method: shown.answers[shown.answers.indexOf(shown.method) - 1] }),
  "answer-next": () => go({ key: shown.key, method: shown.answers[shown.answers.indexOf(shown.method) + 1] }),
  "add-edge": () => edit("add", number("tail"), number("head")),
  "change-feature": () => edit("change", number("node"), number("column"), number("value")),
  again: () => search("again"),
  another: () => search("another"),
  find: () => search("find"),
  cancel: () => asked("/cancel", {}),
  png,
  svg: () => download(saved("svg"), ""),
  json: () => download(saved("json"), ""),
  copy: () => navigator.clipboard.writeText(document.querySelector("#why code").textContent),
};
for (const [id, act] of Object.entries(presses)) {
  byId(id)?.addEventListener("click", (event) => (event.target.getAttribute("aria-disabled") ? refused(event.target) : act()));
}
byId("near").addEventListener("input", () => go(parts()));
document.addEventListener("click", (event) => {
  const link = event.target.closest("a[href^='#instance-']");
  if (!link) return;
  event.preventDefault();
  pick(link.hash.slice("#instance-".length));
});

/* -- keys, and going back */

const typing = (element) => element.closest("input:not([type=radio]):not([type=checkbox]), textarea, select");
document.addEventListener("keydown", (event) => {
  const target = event.target instanceof Element ? event.target : document.body, letter = event.key.toLowerCase();
  if ((event.ctrlKey || event.metaKey) && !event.altKey && (letter === "z" || letter === "y")) {
    if (typing(target) && target.value) return; // the field's own text is taken back
    event.preventDefault();
    undo(letter === "y" || event.shiftKey ? 1 : -1);
  } else if (!event.ctrlKey && !event.metaKey && !event.altKey && (event.key === "ArrowLeft" || event.key === "ArrowRight")) {
    if (target.closest("input, textarea, select")) return;
    event.preventDefault();
    step(event.key === "ArrowLeft" ? -1 : 1);
  }
});
window.addEventListener("popstate", () => {
  const back = trail.indexOf(window.location.search);
  if (back >= 0) at = back;
  go({ address: window.location.search }, "replaceState");
});
go({ address: window.location.search }, "replaceState").then(() => {
  if (shown) return; // else the address means nothing here, which stays said
  const said = byId("address-note").textContent;
  go({ address: "" }, "replaceState").then(() => { byId("address-note").textContent = said; });
});
