// Lists of images, and one image with the training images behind its prediction.

import { asking, bars, content, counted, el, growing, level, notice, percent, picture, shown } from "./pieces.js";

const ORDERS = { given: "as given", doubtful: "least credible label first", uncertain: "least sure first", information: "most informative first" };

export async function showImages(set, query) {
  const list = el("ol", { class: "tiles" });
  const go = (change) => { const next = new URLSearchParams(query); for (const [k, v] of Object.entries(change)) v ? next.set(k, v) : next.delete(k); location.hash = `#/images/${set}?${next}`; };
  const choose = (name, options, chosen) => el("select", { onchange: (e) => go({ [name]: e.target.value }) },
    Object.entries(options).map(([value, text]) => el("option", { value, selected: value === chosen }, text)));
  const orders = Object.fromEntries(Object.entries(ORDERS).filter(([k]) => set === "train" || k !== "information"));
  const classes = { "": "all classes", ...Object.fromEntries(shown.about.classes.map((c) => [c, c])) };
  const { more, next } = growing(list, `/api/images/${set}?${query}`, (r) => tile(set, r), "No image is like this.");
  content.replaceChildren(
    el("h2", {}, set === "train" ? "Training images" : "Test images"),
    el("p", { class: "small" }, set === "train" ? "Predictions are leave-one-out: by a model without the image." : "Images that the model was not fitted on."),
    el("div", { class: "bar-above" },
      el("label", {}, "class", choose("class", classes, query.get("class") || "")),
      el("label", {}, "order", choose("order", orders, query.get("order") || "given")),
      el("label", {}, el("input", { type: "checkbox", checked: query.get("wrong") === "1", onchange: (e) => go({ wrong: e.target.checked ? "1" : "" }) }), "wrong ones only")),
    list, more);
  await next();
}

function tile(set, r) {
  const words = r.wrong ? `${r.predicted}? ${percent(r.probability, 0)}` : r.label;
  return el("li", { class: r.wrong ? "wrong" : null }, el("a", { href: `#/image/${set}/${r.n}` },
    picture(set, r.n, 160, r.id), el("b", {}, words),
    el("span", {}, r.wrong ? `labelled ${r.label}` : r.probability === null ? "prediction not known" : percent(r.probability, 0)),
    el("span", { class: "file" }, r.id)));
}

export async function showImage(set, n) {
  content.replaceChildren(el("p", { class: "soft" }, "Looking for the training images behind this prediction…"));
  const mine = shown.view;
  const found = await asking(`/api/image/${set}/${n}`);
  if (mine === shown.view) explain(found, content);
}

export function explain(found, into) {
  const wrong = found.label !== null && found.label !== found.predicted;
  const out = found.out_of_sample;
  const strongest = Math.max(...[...found.towards, ...found.away].map((p) => Math.abs(p.change)), 1e-300);
  const ticked = new Map();
  const panel = el("section", { class: "without", "aria-live": "polite", "aria-label": "without these" });
  const update = whatIf(found, ticked, panel);
  const rows = (side) => el("ul", { class: "pushes" }, found[side].map((p) => {
    const bar = el("i");
    bar.style.width = `${50 * Math.abs(p.change) / strongest}%`;
    const tick = el("input", { type: "checkbox", "aria-label": `without ${p.name}`, onchange: (e) => {
      e.target.checked ? ticked.set(p.name, p.samples) : ticked.delete(p.name);
      update();
    } });
    const itself = found.set === "train" && p.samples.includes(found.n);
    const many = p.samples.length > 1 ? `${counted(p.samples.length, "image")} of ${p.name}` : p.name;
    return el("li", {}, el("label", {}, tick, picture("train", p.n, 160, p.name),
      el("span", { class: "who" }, itself ? `${p.label} (this image itself)` : p.label, el("span", {}, many)),
      el("span", { class: `signed ${side}`, role: "img", "aria-label": `pushed ${side === "towards" ? "towards it" : "away"}: ${p.change.toExponential(1)} in log-odds without it`, title: `log-odds ${(p.change).toPrecision(2)} without it` }, bar),
      el("span", { class: "then" }, `without it ${percent(p.probability)}`)));
  }));
  const none = () => el("p", { class: "small" }, "no training image");
  into.replaceChildren(el("div", { class: "asked" },
    el("div", {},
      picture(found.set, found.n, 480, found.id),
      el("h2", { class: wrong ? "worse" : null }, `${found.predicted}, ${percent(found.probability)}`),
      found.label === null ? null : el("p", { class: "small" }, wrong ? `but it is labelled ${found.label}` : "and so it is labelled"),
      out && out.predicted ? el("p", { class: "small" }, `A model without it: ${out.predicted}, ${percent(out.probability)}.`) : null,
      bars(found.probabilities),
      found.prediction_set ? predictionSet(found.prediction_set) : null,
      el("p", { class: "small file" }, found.id)),
    el("div", {},
      el("h3", {}, `Pushed it towards ${found.predicted} `, level(found)),
      el("p", { class: "small" }, `${found.predicted} against ${found.against}, the likeliest other class: ${percent(found.share)} now.`),
      found.towards.length ? rows("towards") : none(),
      el("h3", {}, "Pushed it away"),
      found.away.length ? rows("away") : none(),
      panel)));
  update();
}

function predictionSet(of) {
  if (of.classes === null) return el("p", { class: "small" }, `No prediction set: ${of.note}`);
  const names = of.classes.length ? of.classes.join(", ") : "no class: it is unlike the training images of all";
  return el("p", { class: "small" }, `Prediction set at coverage ${percent(of.coverage, 0)}: `, el("b", {}, names), " ", level(of));
}

// Ask again what the prediction is without the ticked images, shortly after the last tick.
function whatIf(found, ticked, panel) {
  let wait = 0, asked = 0;
  return () => {
    clearTimeout(wait);
    const mine = ++asked;
    panel.classList.toggle("some", ticked.size > 0);
    if (!ticked.size) {
      panel.replaceChildren(el("p", { class: "small" }, "Tick training images to see the prediction without them."));
      return;
    }
    wait = setTimeout(async () => {
      panel.setAttribute("aria-busy", "true");
      try {
        const question = { set: found.set, n: found.n, without: [...ticked.values()].flat() };
        const soon = await asking("/api/what-if", { ...question, test: false });
        if (mine === asked) panel.replaceChildren(...changed(found, soon));
        if (mine !== asked || shown.about.test === null) return;
        for (;;) { // the test images' kernel is made once, behind the page
          const whole = await asking("/api/what-if", question);
          if (mine !== asked) return;
          panel.replaceChildren(...changed(found, whole));
          if (!whole.ahead) return;
          const { done, total } = whole.ahead;
          const far = total ? `, ${percent(done / total, 0)}` : "";
          panel.append(el("p", { class: "small" }, `The test error follows: its kernel is being made${far}.`));
          await new Promise((later) => setTimeout(later, 1000));
          if (mine !== asked) return;
        }
      } catch (e) { if (mine === asked) panel.replaceChildren(notice("No answer.", e.message)); }
      finally { panel.removeAttribute("aria-busy"); }
    }, 80);
  };
}

function changed(found, answer) {
  const loo = answer.leave_one_out, test = answer.test;
  return [
    el("p", {}, `Without ${answer.without.length === 1 ? "it" : `these ${answer.without.length}`}: `,
      el("b", { class: answer.changed ? "changed" : null }, `${answer.predicted}, ${percent(answer.probability)}`),
      ` instead of ${found.predicted}, ${percent(found.probability)} `, level(answer)),
    errors(loo, test),
  ];
}

export function errors(loo, test) {
  const out = el("dl");
  const line = (name, before, after, note) => out.append(el("dt", {}, name), el("dd", {}, `${percent(before, 2)} → ${percent(after, 2)} `, note || ""));
  if (loo.after === null) out.append(el("dt", {}, "leave-one-out error"), el("dd", { class: "soft" }, loo.why || percent(loo.before, 2)));
  else {
    line("leave-one-out error", loo.before, loo.after, level(loo));
    if (loo.others_before !== null) line("of the other images", loo.others_before, loo.others_after);
  }
  if (test) line("test error", test.before, test.after, level(test));
  return out;
}
