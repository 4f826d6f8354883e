// How the run is getting on: its state, its processes, and what the server is doing.

import { byId, countText, make, sizeText } from "./words.js";

const HIGH = 0.5;
const FULL = 0.9;
const STATES = {
  interrupted: "This run was interrupted before it was finished. What was stored until then is shown.",
};

/** Shows who captures what, how fast, how full the rings are, and what was lost. */
export function showStatus(status, rows) {
  byId("run").textContent = status.run;
  document.title = `${status.run} · dumpstream`;
  const state = byId("state");
  if (state.textContent !== status.state) state.textContent = status.state; // a screen reader says what changes
  state.className = `chip ${status.state}`;
  const rate = status.members.reduce((sum, it) => sum + (it.rate ?? 0), 0);
  const totals = [...(rows === undefined ? [] : [countText(rows, "tensor")]), countText(status.files, "file"), sizeText(status.bytes)];
  if (status.state === "running") totals.push(`${sizeText(rate)}/s`);
  byId("totals").textContent = totals.join(" · ");
  byId("against").hidden = !status.against;
  byId("against").textContent = status.against ? `against ${status.against.run}` : "";
  showProcesses(status);
}

/** What to say of the state of a run, if anything. */
export const stateText = (status) => STATES[status.state] ?? "";

function showProcesses(status) {
  const live = status.members.some((it) => it.ring);
  const titles = ["Process", "State", "Lost", ...(live ? ["Ring", "Rate"] : []), "Size", "Files"];
  const numeric = new Set(["Rate", "Size"]);
  const head = titles.map((text) => make("th", { scope: "col", textContent: text, className: numeric.has(text) ? "number" : "" }));
  const lines = status.members.map((it) => make("tr", {}, ...cellsOf(it, live)));
  byId("processes-box").hidden = !lines.length;
  byId("processes").replaceChildren(make("thead", {}, make("tr", {}, ...head)), make("tbody", {}, ...lines));
}

function cellsOf(it, live) {
  const lost = Object.entries(it.losses).map(([cause, [chunks]]) => `${countText(chunks, "chunk")} (${cause})`).join(", ");
  const verdicts = Object.entries(it.verdicts).map(([verdict, count]) => `${count.toLocaleString("en")} ${verdict}`).join(", ");
  const running = it.state === "running" && !it.problem;
  const words = it.problem ?? (running ? "running" : it.ending ?? it.state ?? "");
  const state = make("td", { textContent: words, className: it.problem ? "bad" : running ? "good" : "" });
  const name = make("th", { scope: "row", textContent: it.name, title: it.command });
  const cells = [name, state, make("td", { className: lost ? "bad" : "", textContent: lost || "nothing" })];
  if (live) cells.push(ringOf(it), make("td", { className: "number", textContent: it.rate === undefined ? "–" : `${sizeText(it.rate)}/s` }));
  cells.push(make("td", { className: "number", textContent: sizeText(it.bytes) }), make("td", { textContent: verdicts || "none yet" }));
  return cells;
}

function ringOf({ ring }) {
  if (!ring?.bytes) return make("td", { textContent: "–" });
  const share = Math.min(ring.fill / ring.bytes, 1);
  const words = `${Math.round(share * 100)} %`;
  const meter = make("meter", { min: 0, max: 1, low: HIGH, high: FULL, optimum: 0, value: share, title: `${sizeText(ring.fill)} of ${sizeText(ring.bytes)}` });
  meter.setAttribute("aria-label", `ring ${words} full`);
  return make("td", { className: "ring" }, meter, words);
}

/** Shows what the server does for the page, and how far it is. */
export function showWork(doing) {
  const box = byId("work");
  box.hidden = !doing;
  if (!doing) return;
  const [words, bar] = [byId("doing"), byId("progress")];
  if (words.textContent !== doing.what) words.textContent = doing.what; // a screen reader says what changes
  if (doing.of) {
    bar.max = doing.of;
    bar.value = Math.min(doing.done, doing.of);
  } else bar.removeAttribute("value");
}

/** Offers to compute statistics, and calls `accepted` if a person wants them. */
export function showOffer(offer, accepted) {
  const box = byId("offer");
  box.hidden = !offer;
  if (!offer || box.dataset.bytes === String(offer.bytes)) return;
  box.dataset.bytes = offer.bytes;
  const words = `This run has no statistics, which the map is drawn from. To compute them, ${countText(offer.files, "file")} of ${sizeText(offer.bytes)} have to be read.`;
  const button = make("button", { type: "button", textContent: "Compute statistics", className: "main" });
  button.onclick = () => {
    button.disabled = true;
    accepted();
  };
  box.replaceChildren(make("p", { textContent: words }), button);
}
