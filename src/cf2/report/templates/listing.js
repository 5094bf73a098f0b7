/* Which explanations of a list are shown, in which order: the report and the page have the same filters. */
const byId = (id) => document.getElementById(id);
const tests = {
  all: () => true,
  both: (r) => r.sufficient && r.necessary,
  unnecessary: (r) => !r.necessary,
  insufficient: (r) => r.sufficient === false,
  wrong: (r) => r.wrong,
  open: (r) => ["impossible", "not found", "refused"].includes(r.status),
};
const compare = (a, b) => {
  if (a === b) return 0;
  if (a === null) return 1;
  if (b === null) return -1;
  if (Array.isArray(a)) return a.reduce((found, part, i) => found || part - b[i], 0);
  return a < b ? -1 : 1;
};
/* `order` is a column and a sign, "size-"; `search` a key, "17" or "3, 17". */
const listed = (rows, show, order, search) => {
  const verdict = show.replace(/^status:/, ""), test = tests[show] || ((r) => r.status === verdict);
  const wanted = search.replace(/[()\s]/g, "");
  const shown = rows.filter((r) => test(r) && (!wanted || String(r.key) === wanted));
  if (!order) return shown;
  const column = order.slice(0, -1), sign = order.endsWith("-") ? -1 : 1;
  return shown.sort((a, b) => sign * compare(a[column], b[column])); // stable
};
/* One page of what was found among `all`; says which it is, and how many there are of the noun. */
const turned = (found, all, page, size, noun) => {
  const pages = Math.max(1, Math.ceil(found.length / size)), here = Math.min(Math.max(page, 0), pages - 1);
  byId("pages").textContent = `${(here + 1).toLocaleString("en")} of ${pages.toLocaleString("en")}`;
  byId("count").textContent = `${found.length.toLocaleString("en")} of ${all.length.toLocaleString("en")} ${noun}`;
  byId("previous").parentElement.hidden = pages < 2;
  byId("previous").disabled = here === 0;
  byId("next").disabled = here + 1 >= pages;
  return [here, found.slice(here * size, (here + 1) * size)];
};
