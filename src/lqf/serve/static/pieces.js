// What all views are made of. Everything that comes from data is put in as text (`el`), never as HTML.

const token = document.querySelector("meta[name=lqf-token]").content;
export const content = document.getElementById("content");
const statusLine = document.getElementById("status");
// What the server says about the model, and the number of the view that is shown: answers for an earlier one are dropped.
export const shown = { about: null, view: 0 };

export function el(tag, given, ...inside) {
  const made = document.createElement(tag);
  for (const [name, value] of Object.entries(given || {})) {
    if (name.startsWith("on")) made.addEventListener(name.slice(2), value);
    else if (value === true) made.setAttribute(name, "");
    else if (value !== false && value !== null && value !== undefined) made.setAttribute(name, value);
  }
  made.append(...inside.flat().filter((x) => x !== null && x !== undefined && x !== false));
  return made;
}

export function percent(p, digits = 1) {
  if (p === null || p === undefined) return "not known";
  const share = 100 * p;
  if (share > 99.9 && share < 100) digits = Math.min(6, Math.ceil(-Math.log10(100 - share)) + 1);
  return share.toFixed(digits) + "\u202f%";
}

// 13.3, 194,000, 1.9e-6
export function plain(x, digits = 3) {
  return x >= 1e-4 && x < 1e7 ? x.toLocaleString("en", { maximumSignificantDigits: digits }) : x.toExponential(digits - 1);
}

export const counted = (n, word) => `${n.toLocaleString("en")} ${word}${n === 1 ? "" : "s"}`;

export function picture(set, n, side, alt) {
  return el("img", { class: "pic", src: `/picture/${set}/${n}/${side}`, alt, title: alt, loading: "lazy", decoding: "async",
    width: side, height: side, onerror: (e) => { e.target.alt = `no picture of ${alt}`; } });
}

export function bars(pairs) {
  const out = el("div", { class: "bars" });
  for (const [name, p] of pairs) {
    const bar = el("i");
    bar.style.width = `${100 * p}%`;
    out.append(el("span", { title: name }, name), percent(p, 0), bar);
  }
  return out;
}

export const level = (of) => el("span", { class: "level", title: of.note || of.level }, of.level);

export function notice(title, text) {
  return el("div", { class: "notice", role: "alert" }, el("p", {}, el("b", {}, title + " "), text.charAt(0).toUpperCase() + text.slice(1)));
}

export function say(sentence, bad = false) {
  statusLine.textContent = sentence;
  statusLine.classList.toggle("bad", bad);
}

// --- asking ---

export async function ask(path, body) {
  const how = { headers: { "x-lqf-token": token } };
  if (body instanceof Blob) Object.assign(how, { method: "POST", body });
  else if (body !== undefined) Object.assign(how, { method: "POST", body: JSON.stringify(body) });
  let answer;
  try { answer = await fetch(path, how); } catch { throw new Error("the server does not answer; is lqf serve still running?"); }
  let found;
  try { found = await answer.json(); } catch { throw new Error(`the server has failed (${answer.status})`); }
  if (!answer.ok) throw new Error(found.error || `the server has failed (${answer.status})`);
  return found;
}

// Ask, and say how far it is where that takes longer than a moment.
export async function asking(path, body) {
  content.setAttribute("aria-busy", "true");
  const watch = setInterval(async () => {
    try {
      const { question: q } = await ask("/api/progress");
      say(q.stage ? `${q.stage} ${q.total ? `${q.done} of ${q.total}` : q.done || ""}…` : "computing…");
    } catch { /* the question itself will fail, too */ }
  }, 700);
  try { const found = await ask(path, body); say(""); return found; }
  finally { clearInterval(watch); content.removeAttribute("aria-busy"); }
}

// --- lists that grow as one scrolls ---

export function growing(list, path, tile, empty) {
  const more = el("button", { type: "button", hidden: true }, "more");
  const mine = shown.view;
  let start = 0, busy = false, first = null;
  async function next() {
    if (busy) return;
    busy = true;
    try {
      const found = await asking(`${path}${path.includes("?") ? "&" : "?"}start=${start}&most=100`);
      if (mine !== shown.view) return;
      list.append(...found.rows.map(tile));
      start += found.rows.length;
      more.hidden = start >= found.n;
      if (first === null) {
        first = found;
        say(counted(found.n, "image"));
        if (found.n === 0) list.after(el("p", { class: "soft empty" }, empty));
      }
    } catch (e) { if (mine === shown.view) { say(e.message, true); if (start === 0) list.after(notice("This list cannot be shown.", e.message)); } }
    finally { busy = false; }
    return first;
  }
  more.addEventListener("click", next);
  new IntersectionObserver((seen) => { if (seen.some((s) => s.isIntersecting) && !more.hidden) next(); }, { rootMargin: "900px" }).observe(more);
  return { more, next };
}
