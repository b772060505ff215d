// Which view is shown.

import { asking, content, counted, el, notice, percent, say, shown } from "./pieces.js";
import { showImage, showImages } from "./images.js";
import { showLabels } from "./labels.js";
import { showDecays, showOwn, showSuggested, showSummary } from "./more.js";

const itself = document.title;

async function show() {
  const [path, query] = (location.hash.slice(1) || "/images/train").split("?");
  const words = path.split("/").filter(Boolean);
  const mine = ++shown.view;
  say("");
  document.title = itself;
  for (const a of document.querySelectorAll("#views a")) {
    const here = a.getAttribute("href") === `#/${words.slice(0, 2).join("/")}` || (words[0] === "image" && a.getAttribute("href") === `#/images/${words[1]}`);
    here ? a.setAttribute("aria-current", "page") : a.removeAttribute("aria-current");
    if (here) document.title = `${a.textContent} · ${itself}`;
  }
  try {
    if (words[0] === "images") await showImages(words[1], new URLSearchParams(query));
    else if (words[0] === "image") await showImage(words[1], Number(words[2]));
    else if (words[0] === "labels") await showLabels();
    else if (words[0] === "own") await showOwn();
    else if (words[0] === "decays") await showDecays();
    else if (words[0] === "summary") await showSummary();
    else if (words[0] === "suggested") await showSuggested();
    else content.replaceChildren(notice("There is no such view.", "Choose one above."));
  } catch (e) { if (mine === shown.view) { content.replaceChildren(notice("This cannot be shown.", e.message)); say(e.message, true); } }
}

async function begin() {
  try { shown.about = await asking("/api/about"); }
  catch (e) { content.replaceChildren(notice("The page cannot begin.", e.message)); return; }
  document.getElementById("what").textContent = shown.about.what;
  document.getElementById("to-test").hidden = shown.about.test === null;
  document.getElementById("to-summary").hidden = shown.about.test === null || shown.about.level !== "exact";
  document.getElementById("to-suggested").hidden = !shown.about.pool;
  const figure = (name, value, note) => el("div", {}, el("dt", {}, name), el("dd", { class: "big" }, value), el("dd", { class: "small" }, note));
  document.getElementById("figures").append(...[
    shown.about.test === null ? null : figure("test error", percent(shown.about.test_error), `${counted(shown.about.test, "test image")}`),
    figure("leave-one-out error", percent(shown.about.error), `${counted(shown.about.train, "training image")}, ${shown.about.error_level}`),
    figure("classes", shown.about.classes.length.toLocaleString("en"), shown.about.classes.slice(0, 4).join(", ") + (shown.about.classes.length > 4 ? " …" : "")),
    figure("answers", shown.about.level, `solver ${shown.about.solver}`),
  ].filter(Boolean));
  document.querySelector(".skip").addEventListener("click", (e) => { e.preventDefault(); content.focus(); }); // its #content is no view
  window.addEventListener("hashchange", () => { show(); content.focus({ preventScroll: true }); });
  show();
}

begin();
