// One's own image, other weight decays, what to label next.

import { asking, content, counted, el, level, notice, percent, picture, plain, say, shown } from "./pieces.js";
import { explain } from "./images.js";

export async function showOwn() {
  const into = el("div");
  const file = el("input", { type: "file", accept: "image/*", "aria-label": "an image file", onchange: (e) => send(e.target.files[0]) });
  const drop = el("div", { class: "drop" }, el("p", {}, "Drop an image here, or choose one. It stays on this machine and is not written."), file);
  async function send(blob) {
    if (!blob) return;
    into.replaceChildren(el("p", { class: "soft" }, "Predicting…"));
    const mine = shown.view;
    try { const found = await asking("/api/own", blob); if (mine === shown.view) explain(found, into); }
    catch (e) { if (mine === shown.view) { into.replaceChildren(notice("This image cannot be predicted.", e.message)); say(e.message, true); } }
  }
  drop.addEventListener("dragover", (e) => { e.preventDefault(); drop.classList.add("over"); });
  drop.addEventListener("dragleave", () => drop.classList.remove("over"));
  drop.addEventListener("drop", (e) => { e.preventDefault(); drop.classList.remove("over"); send(e.dataTransfer.files[0]); });
  content.replaceChildren(el("h2", {}, "Your own image"), drop, into);
}

// --- weight decay ---

const SVG = "http://www.w3.org/2000/svg";
function svg(tag, given, ...inside) {
  const made = document.createElementNS(SVG, tag);
  for (const [name, value] of Object.entries(given)) made.setAttribute(name, value);
  made.append(...inside);
  return made;
}

export async function showDecays() {
  content.replaceChildren(el("p", { class: "soft" }, "Looking at other weight decays…"));
  const mine = shown.view;
  const found = await asking("/api/decays");
  if (mine !== shown.view) return;
  const sorted = (name) => [...new Set(found.grid.map((t) => t[name]))].sort((a, b) => a - b);
  const heads = sorted("weight_decay"), bodies = found.current.body_weight_decay === null ? [null] : sorted("body_weight_decay");
  const at = { head: heads.indexOf(found.current.weight_decay), body: bodies.indexOf(found.current.body_weight_decay) };
  const out = el("div", { "aria-live": "polite" }), plot = el("figure");
  const pair = (h, b) => found.grid.find((t) => t.weight_decay === heads[h] && (bodies[b] === null || t.body_weight_decay === bodies[b]));
  const update = () => {
    const t = pair(at.head, at.body), now = found.current;
    out.replaceChildren(t ? el("dl", { class: "pairs-of" },
      el("dt", {}, "leave-one-out error"), el("dd", {}, `${percent(t.error, 2)} (now ${percent(now.error, 2)}) `, level(found)),
      el("dt", {}, "cross-entropy"), el("dd", {}, `${t.loss.toFixed(4)} (now ${now.loss.toFixed(4)})`))
      : el("p", { class: "soft" }, "This pair was not looked at; move a slider."));
    plot.replaceChildren(curve(heads.map((d, h) => [d, pair(h, at.body)]).filter(([, t]) => t), heads[at.head], now.weight_decay));
  };
  const slider = (name, words, values) => {
    const chosen = el("output", {}, plain(values[at[name]]));
    return el("label", {}, words, el("input", { type: "range", min: 0, max: values.length - 1, step: 1, value: at[name], "aria-valuetext": plain(values[at[name]]), oninput: (e) => {
      at[name] = Number(e.target.value);
      chosen.textContent = plain(values[at[name]]);
      e.target.setAttribute("aria-valuetext", chosen.textContent);
      update();
    } }), chosen);
  };
  content.replaceChildren(el("h2", {}, "Weight decay"),
    el("p", { class: "small" }, `Errors of ${found.by} over ${counted(found.n, "image")}. The model stays as it is; `, el("code", {}, "lqf tune"), " writes one with other weight decays."),
    el("div", { class: "bar-above sliders" }, slider("head", "of the head", heads), bodies[0] === null ? null : slider("body", "of the body", bodies)),
    out, plot);
  update();
}

function curve(points, chosen, now) {
  const line = { kind: "loo", points: points.map(([d, t]) => [Math.log10(d), 100 * t.error]) };
  const dot = (d) => line.points.find(([x]) => x === Math.log10(d));
  return plotted("weight decay of the head", [line], [["loo", 4, dot(now)], ["kept", 6, dot(chosen)]], (x) => plain(10 ** x, 2));
}

// Lines of (x, error in %) with some dots on them.
function plotted(words, lines, dots, label) {
  const [w, h, l, b] = [520, 240, 52, 36];
  const every = lines.flatMap((line) => line.points), xs = every.map(([x]) => x), errors = every.map(([, e]) => e);
  const [x0, x1, y0, y1] = [Math.min(...xs), Math.max(...xs), Math.min(...errors), Math.max(...errors, Math.min(...errors) + 1)];
  const x = (v) => l + (w - l - 12) * (v - x0) / (x1 - x0 || 1), y = (e) => h - b - (h - b - 14) * (e - y0) / (y1 - y0);
  return svg("svg", { class: "plot", viewBox: `0 0 ${w} ${h}`, role: "img", "aria-label": `error against the ${words}` },
    svg("line", { class: "base", x1: l, x2: w - 12, y1: h - b, y2: h - b }),
    ...[y0, y1].map((e) => svg("text", { x: l - 7, y: y(e) + 4, "text-anchor": "end" }, `${e.toFixed(1)} %`)),
    ...[x0, x1].map((v, i) => svg("text", { x: x(v), y: h - b + 16, "text-anchor": i ? "end" : "start" }, label(v))),
    svg("text", { x: (l + w) / 2, y: h - 6, "text-anchor": "middle" }, words),
    ...lines.map((line) => svg("polyline", { class: line.kind, points: line.points.map(([v, e]) => `${x(v)},${y(e)}`).join(" ") })),
    ...dots.filter(([, , at]) => at).map(([kind, r, [v, e]]) => svg("circle", { class: kind, cx: x(v), cy: y(e), r })));
}

// --- fewer training images ---

export async function showSummary() {
  content.replaceChildren(el("p", { class: "soft" }, "Leaving out training images…"));
  const mine = shown.view;
  const found = await asking("/api/summary");
  if (mine !== shown.view) return;
  const out = el("div", { "aria-live": "polite" }), plot = el("figure"), share = el("output");
  const names = { least: ["the least informative", "loo"], random: [`random ones (mean of ${found.repeats})`, "even"], most: ["the most informative", "test"] };
  const update = (k) => {
    share.textContent = percent(found.shares[k], 0);
    out.replaceChildren(el("dl", { class: "pairs-of" }, Object.entries(names).map(([name, [words, css]]) =>
      [el("dt", {}, el("span", { class: `key ${css}` }, el("span", {}, `without ${words}`))), el("dd", {}, percent(found[name][k], 2))]).flat()));
    const lines = Object.entries(names).map(([name, [, kind]]) => ({ kind, points: found.shares.map((s, i) => [100 * s, 100 * found[name][i]]) }));
    plot.replaceChildren(plotted("share of the training images left out, in %", lines, [["kept", 6, lines[0].points[k]]], (x) => x.toFixed(0)));
  };
  content.replaceChildren(el("h2", {}, "Fewer training images"),
    el("p", { class: "small" }, `Test error on ${counted(found.n_test, "image")} when a part of the training images is left out. `, el("code", {}, "lqf summarize"), " writes the rest as a manifest. ", level(found)),
    el("div", { class: "bar-above" }, el("label", {}, "left out", el("input", { type: "range", min: 0, max: found.shares.length - 1, step: 1, value: 0, oninput: (e) => {
      update(Number(e.target.value));
      e.target.setAttribute("aria-valuetext", share.textContent);
    } }), share)),
    out, plot);
  update(0);
}

// --- what to label next ---

export async function showSuggested() {
  content.replaceChildren(el("p", { class: "soft" }, "Choosing images…"));
  const mine = shown.view;
  const found = await asking("/api/suggested");
  if (mine !== shown.view) return;
  content.replaceChildren(el("h2", {}, "To label next"),
    el("p", { class: "small" }, `Of ${counted(found.of, "image")} without labels: those whose labels would tell the model most, the most useful first. `, level(found)),
    el("ol", { class: "tiles" }, found.rows.map((r) => el("li", {}, el("a", { href: `#/image/pool/${r.n}` }, picture("pool", r.n, 160, r.id),
      el("b", {}, `${r.predicted}? ${percent(r.probability, 0)}`), el("span", { class: "file" }, r.id))))));
}
