// Labels that look wrong: relabel, exclude, undo, apply.

import { ask, asking, content, counted, el, growing, percent, picture, say, shown } from "./pieces.js";
import { errors } from "./images.js";

export async function showLabels() {
  const list = el("ol", { class: "tiles answers" });
  const head = el("section", { class: "without", "aria-label": "corrections", "aria-live": "polite" });
  const state = { corrections: new Map() };
  const tiles = new Map();
  const { more, next } = growing(list, "/api/labels", (r) => labelTile(r, tiles, state, send), "No label is contradicted.");
  const took = (answer) => {
    state.corrections = new Map(answer.corrections.map((c) => [c.n, c]));
    head.replaceChildren(...summary(answer, send));
    head.classList.toggle("some", answer.steps > 0);
    for (const [n, t] of tiles) t.mark(state.corrections.get(n));
  };
  async function send(path, body) {
    try { const answer = await asking(path, body); if (answer.corrections) took(answer); return answer; }
    catch (e) { say(e.message, true); return null; }
  }
  content.replaceChildren(
    el("h2", {}, "Labels that look wrong"),
    el("p", { class: "small" }, "Leave-one-out predicts another class, the least credible label first. Nothing is changed until you apply it.",
      shown.about.read_only ? " This page is read-only." : ""),
    shown.about.read_only ? "" : el("p", { class: "small" }, "Keys on a picture: ", key("r"), " relabel as predicted, ", key("x"), " exclude, ", key("k"), " keep, ", key("u"), " undo, arrows move."),
    list, more, head);
  list.addEventListener("keydown", (e) => keys(e, list, tiles, state, send));
  const first = await next();
  if (first) { took(first); for (const [n, t] of tiles) t.mark(state.corrections.get(n)); }
}

const key = (k) => el("kbd", {}, k);

function labelTile(r, tiles, state, send) {
  const correct = (action, label) => send("/api/correct", { n: r.n, action, label });
  const button = (text, action, label) => el("button", { type: "button", "aria-pressed": "false", disabled: shown.about.read_only, onclick: (e) => {
    correct(e.currentTarget.getAttribute("aria-pressed") === "true" ? "keep" : action, label);
  } }, text);
  const relabel = button("relabel", "relabel", r.predicted);
  relabel.setAttribute("aria-label", `relabel ${r.id} as ${r.predicted}`);
  const exclude = button("exclude", "exclude");
  exclude.setAttribute("aria-label", `exclude ${r.id}`);
  const other = el("select", { "aria-label": `label of ${r.id}`, disabled: shown.about.read_only, onchange: (e) => correct(e.target.value === r.label ? "keep" : "relabel", e.target.value) },
    shown.about.classes.map((c) => el("option", { value: c, selected: c === r.label }, c)));
  const item = el("li", {}, el("a", { href: `#/image/train/${r.n}`, "data-n": r.n }, picture("train", r.n, 160, r.id),
      el("b", {}, `${r.predicted}? ${percent(r.predicted_probability, 0)}`),
      el("span", {}, `labelled ${r.label}, ${percent(r.label_probability, 0)}`), el("span", { class: "file" }, r.id)),
    el("div", { class: "does" }, relabel, exclude), other);
  const mark = (c) => {
    item.className = !c ? "" : c.action === "exclude" ? "excluded" : "relabelled";
    relabel.setAttribute("aria-pressed", String(Boolean(c && c.label === r.predicted)));
    exclude.setAttribute("aria-pressed", String(Boolean(c && c.action === "exclude")));
    other.value = c && c.label ? c.label : r.label;
  };
  mark(state.corrections.get(r.n));
  tiles.set(r.n, { mark, row: r });
  return item;
}

function keys(e, list, tiles, state, send) {
  const link = e.target.closest("a[data-n]");
  if (!link || e.ctrlKey || e.metaKey || e.altKey) return;
  const n = Number(link.dataset.n), row = tiles.get(n).row;
  const links = [...list.querySelectorAll("a[data-n]")];
  const top = (a) => a.getBoundingClientRect().top;
  const wide = links.filter((a) => top(a) === top(links[0])).length;
  const moves = { ArrowRight: 1, ArrowDown: wide, ArrowLeft: -1, ArrowUp: -wide };
  const step = (by) => { const next = links[links.indexOf(link) + by]; if (next) next.focus(); };
  if (e.key in moves) step(moves[e.key]);
  else if (e.key === "r") send("/api/correct", { n, action: "relabel", label: row.predicted }).then((done) => done && step(1));
  else if (e.key === "x") send("/api/correct", { n, action: "exclude" }).then((done) => done && step(1));
  else if (e.key === "k") send("/api/correct", { n, action: "keep" });
  else if (e.key === "u") send("/api/undo", {});
  else return;
  e.preventDefault();
}

function summary(answer, send) {
  const n = answer.corrections.length;
  const excluded = answer.corrections.filter((c) => c.action === "exclude").length;
  const words = [n - excluded ? `${counted(n - excluded, "image")} relabelled` : "", excluded ? `${excluded} excluded` : ""].filter(Boolean).join(", ");
  return [
    el("p", {}, n ? `${words}; not applied yet.` : "No label is corrected yet."),
    n ? errors(answer.leave_one_out, null) : null,
    shown.about.read_only ? null : el("p", { class: "bar-above" },
      el("button", { type: "button", disabled: !answer.steps, onclick: () => send("/api/undo", {}) }, "undo"),
      el("button", { type: "button", class: "main", disabled: !n, onclick: () => applyNow(send) }, "apply"),
      el("span", { class: "small", id: "applied" }, `changes the model exactly, or fits again where it cannot, and writes ${shown.about.out} beside it`)),
  ].filter(Boolean);
}

async function applyNow(send) {
  if (!(await send("/api/apply", {}))) return;
  const mine = shown.view;
  for (;;) {
    await new Promise((done) => setTimeout(done, 400));
    let now;
    try { now = (await ask("/api/progress")).apply; } catch (e) { say(e.message, true); return; }
    const line = mine === shown.view ? document.getElementById("applied") : null;
    if (now.state === "running") {
      say(`making the corrected model: ${now.stage || "beginning"} ${now.total ? `${now.done} of ${now.total}` : ""}`);
    } else {
      const good = now.state === "done";
      say(good ? `The corrected model is written (${now.sentence.split(",")[0]}): ${now.written.join(", ")}` : now.sentence, !good);
      if (line) line.textContent = good ? `written: ${now.written.join(", ")}` : now.sentence;
      return;
    }
  }
}
