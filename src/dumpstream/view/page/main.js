// The page: what is selected is in its address, so that a link shows the same thing.

import { LOST, css, ground, onThemeChange, ramp, unknown } from "./colours.js";
import { EmbeddedRun, ServedRun } from "./data.js";
import { arrangements, buildGrid, isChosen, modelsOf } from "./grid.js";
import { StepMap } from "./map.js";
import { badness, measuresOf } from "./measures.js";
import { Panel } from "./panel.js";
import { showOffer, showStatus, showWork, stateText } from "./status.js";
import { IO, byId, countText, make, numberText, stepText, tensorText } from "./words.js";

const MOST_LISTED = 200;
const DEFAULTS = { lines: "operators", colour: "bad", rank: "", model: "", find: "", sel: "", zoom: "" };

const embedded = byId("embedded-run");
const source = embedded ? new EmbeddedRun(embedded) : new ServedRun();
const view = { ...DEFAULTS };
let run = null;
let measures = {};
let known = "";
let compared = "";
let loading = false;
let status = null;

function readAddress() {
  const words = new URLSearchParams(location.hash.slice(1));
  for (const name of Object.keys(DEFAULTS)) view[name] = words.get(name) ?? DEFAULTS[name];
}

/** Puts what is shown into the address; with `push`, the browser's back leads to what was shown before. */
function writeAddress(push = false) {
  const words = new URLSearchParams(Object.entries(view).filter(([name, value]) => value !== DEFAULTS[name]));
  history[push ? "pushState" : "replaceState"](null, "", `#${words}`);
}

/** What names a row in the address, also after the run has grown. */
function nameOf(i, of = run) {
  const { columns } = of;
  const [model, , name] = of.operators[columns.operator[i]];
  return JSON.stringify([of.processes[columns.process[i]], of.steps[columns.step[i]], model, name, columns.io[i], columns.index[i]]);
}

function rowNamed(words) {
  let wanted;
  try {
    wanted = JSON.parse(words);
  } catch {
    return -1; // there is none, or it is not from here
  }
  if (!Array.isArray(wanted)) return -1;
  const [label, step, model, name, io, index] = wanted;
  const { columns } = run;
  const process = run.processes.indexOf(label);
  const number = run.steps.indexOf(step);
  const operators = run.operators.map((it) => it[0] === model && it[2] === name);
  for (let i = 0; i < run.rows; i++) {
    if (columns.step[i] === number && columns.process[i] === process && operators[columns.operator[i]] && columns.io[i] === io && columns.index[i] === index) return i;
  }
  return -1;
}

function fill(select, options, chosen) {
  select.replaceChildren(...options.map(([value, text]) => make("option", { value, textContent: text })));
  select.value = chosen;
  if (select.selectedIndex < 0) select.selectedIndex = 0;
}

function fillControls() {
  fill(byId("lines"), arrangements, view.lines);
  fill(byId("colour"), Object.entries(measures).map(([name, { title }]) => [name, title]), view.colour);
  fill(byId("rank"), [["", "all"], ...run.processes.map((name) => [name, name])], view.rank);
  fill(byId("model"), [["", "all"], ...modelsOf(run).map((name) => [name, name])], view.model);
  byId("find").value = view.find;
}

function swatch(colour, words) {
  const box = make("i");
  box.style.background = css(colour);
  return make("span", {}, box, words);
}

function drawLegend(measure) {
  const { legend } = measure;
  const parts = [make("strong", { textContent: measure.title })];
  if (Array.isArray(legend)) parts.push(...legend.map(([words, colour]) => swatch(colour(), words)));
  else {
    const box = make("i", { className: "ramp" });
    const stops = Array.from({ length: 9 }, (_, place) => css(ramp(place / 8)));
    box.style.background = `linear-gradient(to right, ${stops.join(",")})`;
    parts.push(make("span", {}, `${legend.low} `, box, legend.high), ...(legend.more ?? [["no finite value", unknown]]).map(([words, colour]) => swatch(colour(), words)));
  }
  parts.push(swatch(ground(), "not captured"));
  if (run.lost.length || view.colour === "lost") parts.push(swatch(LOST, "not whole"));
  byId("legend").replaceChildren(...parts);
}

let writing = null;
const map = new StepMap(byId("map"), {
  moved: speak,
  opened: open,
  zoomed() {
    clearTimeout(writing); // browsers refuse an address that changes many times a second
    writing = setTimeout(() => {
      view.zoom = map.looked;
      writeAddress();
    }, 250);
  },
});
const panel = new Panel(byId("panel"), { select });

function draw() {
  const measure = measures[view.colour] ?? measures.bad;
  drawLegend(measure);
  try {
    map.show(buildGrid(run, measure, view), measure, run.steps.map((_, step) => stepText(run, step)));
  } catch (error) {
    notice(error.message);
  }
}

function describe({ x, y }) {
  const at = y * map.grid.width + x;
  const row = map.grid.worst[at];
  const lost = map.grid.notWhole[at] ? "; a file is not whole" : "";
  if (y >= map.grid.names.length || x >= run.steps.length) return "Nothing was captured.";
  const model = map.grid.groups.find(({ start, end }) => y >= start && y < end);
  const place = `${map.grid.names[y]}${model ? ` of ${model.name}` : ""}, step ${stepText(run, x)}`;
  if (row < 0) return `${place}: ${lost ? "lost, or not whole" : "not captured"}`;
  const measure = measures[view.colour] ?? measures.bad;
  return `${place}, ${tensorText(run, row)}: ${measure.text(row)}${lost}`;
}

function speak(place) {
  byId("spoken").textContent = describe(place);
}

function open(place, byKey = false) {
  const row = map.grid.worst[place.y * map.grid.width + place.x];
  if (row >= 0) select(row);
  else panel.empty(describe(place));
  if (byKey) byId("panel").focus();
}

/** Shows the tensor that was row `from` of a run, which may have grown since. */
function select(from, of = run) {
  const name = nameOf(from, of);
  const i = of === run ? from : rowNamed(name);
  if (i < 0) return;
  view.sel = name;
  writeAddress(true);
  point(i);
  panel.show(run, source, i, name);
}

/** What the panel has when no tensor is selected. */
function overview() {
  const { columns } = run;
  const known = run.steps.filter((step) => step !== null);
  const steps = known.length ? `${numberText(known.length)}, from ${known[0]} to ${known.at(-1)}` : "not known";
  let [nan, inf] = [0, 0];
  for (let i = 0; i < run.rows; i++) {
    if (columns.nan[i]) nan += 1;
    if (columns.inf[i]) inf += 1;
  }
  return {
    steps, operators: run.operators.length, processes: run.processes.length, tensors: run.rows,
    "with NaN": nan, "with infinity": inf, ...(run.lost.length ? { "files not whole": run.lost.length } : {}),
  };
}

/** Puts the cursor of the map on a row, if the filters show it. */
function point(i) {
  const { columns } = run;
  const line = { operators: columns.operator[i], ranks: columns.process[i] }[view.lines] ?? modelsOf(run).indexOf(run.operators[columns.operator[i]][0] ?? "no model");
  const y = map.grid.lines.indexOf(line);
  if (y >= 0) map.go({ x: columns.step[i], y });
}

function listBad() {
  const { columns } = run;
  const bad = []; // the first of them, in order; there may be a million
  let count = 0;
  const wanted = isChosen(run, view);
  const order = (a, b) => columns.step[a] - columns.step[b] || columns.operator[a] - columns.operator[b] || columns.process[a] - columns.process[b];
  for (let i = 0; i < run.rows; i++) {
    if (!badness(columns, i) || !wanted(i)) continue;
    count += 1;
    if (bad.length === MOST_LISTED && order(i, bad.at(-1)) >= 0) continue;
    let at = bad.length;
    while (at && order(i, bad[at - 1]) < 0) at -= 1;
    bad.splice(at, 0, i);
    if (bad.length > MOST_LISTED) bad.pop();
  }
  byId("bad-count").textContent = count ? numberText(count) : "";
  const items = bad.map((i) => {
    const [, , name] = run.operators[columns.operator[i]];
    const what = columns.nan[i] ? `${numberText(columns.nan[i])} NaN` : `${numberText(columns.inf[i])} infinite`;
    const words = [`step ${stepText(run, columns.step[i])}`, run.processes[columns.process[i]], `${name ?? "operator"} ${tensorText(run, i)}`, what];
    const button = make("button", { type: "button", ariaLabel: words.join(", ") }, ...words.map((text) => make("span", { textContent: text })));
    button.onclick = () => select(i);
    return make("li", {}, button);
  });
  if (count > bad.length) items.push(make("li", { className: "empty", textContent: `${numberText(count - bad.length)} more` }));
  byId("bad").replaceChildren(...(items.length ? items : [make("li", { className: "empty", textContent: "None." })]));
}

/** Shows a sentence, with a button that leads to the row it is about. */
function showSentence(id, sentence, row) {
  const box = byId(id);
  box.hidden = !sentence;
  box.row = row ?? null; // its number changes when the run grows
  if (sentence && box.dataset.said !== sentence) { // a screen reader says what changes
    box.dataset.said = sentence;
    const button = make("button", { type: "button", textContent: "Show it" });
    button.onclick = () => {
      const first = run.columns.row.indexOf(box.row);
      if (first >= 0) select(first);
    };
    box.replaceChildren(make("span", { textContent: sentence }), button);
  }
  if (sentence) box.querySelector("button").hidden = box.row === null;
}

function notice(words) {
  const empty = run && !run.rows ? (status?.state === "running" ? "No tensor has been captured yet." : "No tensor was captured.") : "";
  const shown = [words || (status && stateText(status)), empty].filter(Boolean).join(" ");
  byId("notice").hidden = !shown;
  if (byId("notice").textContent !== shown) byId("notice").textContent = shown;
}

async function load() {
  if (loading) return;
  loading = true;
  try {
    const loaded = await source.load();
    const isSeen = loaded && (loaded.rows || loaded.lost.length);
    for (const id of ["controls", "mapping", "panel", "bad-box"]) byId(id).hidden = !isSeen;
    if (!loaded) return;
    run = loaded;
    known = run.status.version;
    compared = "";
    show(status ?? run.status);
    byId("missing-box").hidden = !run.missing.length;
    byId("missing").replaceChildren(...run.missing.map((words) => make("li", { textContent: words })));
    await loadAgainst();
    apply();
  } catch (error) {
    notice(error.message);
  } finally {
    loading = false;
  }
}

/** Loads how the run differs from the other one, if that is known. */
async function loadAgainst() {
  const version = status?.against?.version;
  if (version === undefined || version === compared) return;
  const columns = await source.against(run);
  if (!columns) return;
  Object.assign(run.columns, columns);
  compared = version;
}

/** The row that an alert is about, or -1. */
function rowOfAlert({ rank, step, model, op_name: name, io, index }) {
  const processes = run.processes.map((label) => rank === null || label.split(", ").includes(`rank ${rank}`));
  for (const [process, fits] of processes.entries()) {
    const row = fits ? rowNamed(JSON.stringify([run.processes[process], step, model, name, IO.indexOf(io), index])) : -1;
    if (row >= 0) return row;
  }
  return -1;
}

/** Lists what was told while the run went on, the latest first. */
function listAlerts(alerts) {
  const box = byId("alerts");
  byId("alerts-box").hidden = !alerts?.length;
  const said = JSON.stringify(alerts);
  if (!alerts?.length || box.dataset.said === said) return; // a screen reader says what changes
  box.dataset.said = said;
  const items = alerts.toReversed().map((alert) => {
    const time = make("time", { dateTime: alert.time, textContent: new Date(alert.time).toLocaleTimeString("en-GB") });
    const button = make("button", { type: "button", textContent: alert.sentence });
    button.onclick = () => {
      const row = run ? rowOfAlert(alert) : -1;
      if (row >= 0) select(row);
      else notice("That tensor is not on the map yet.");
    };
    return make("li", {}, time, " ", make("span", { textContent: alert.process }), " ", button);
  });
  box.replaceChildren(...items);
}

/** Shows everything but the map. */
function show(told) {
  status = told;
  showStatus(status, run?.rows);
  showSentence("sentence", status.sentence, status.origin);
  showSentence("difference", status.against?.sentence, status.against?.first);
  byId("difference-notes").replaceChildren(...(status.against?.notes ?? []).map((words) => make("li", { textContent: words })));
  byId("difference-notes").hidden = !status.against?.notes?.length;
  listAlerts(status.alerts);
  showWork(status.doing);
  showOffer(status.offer, () => source.ask().catch((error) => notice(error.message)));
  notice(status.problem ?? "");
}

/** Shows what the address says. */
function apply() {
  measures = measuresOf(run);
  fillControls();
  draw();
  listBad();
  if (!map.grid) return;
  map.look(view.zoom);
  const row = rowNamed(view.sel);
  if (row < 0) {
    if (!view.sel || panel.shown === null) panel.empty("Choose a place on the map, or a bad tensor below it.", overview());
    return;
  }
  point(row);
  if (panel.shown === view.sel && !panel.isStale) panel.update(run, row);
  else panel.show(run, source, row, view.sel);
}

async function hear(told) {
  show(told);
  if (told.problem) return;
  if (told.version !== known) await load();
  else if (run && told.against?.version !== undefined && told.against.version !== compared && !loading) {
    await loadAgainst();
    apply();
  }
}

for (const [id, name] of [["lines", "lines"], ["colour", "colour"], ["rank", "rank"], ["model", "model"], ["find", "find"]]) {
  byId(id).addEventListener("input", (event) => {
    view[name] = event.target.value;
    notice(status?.problem ?? "");
    writeAddress();
    if (!run) return;
    draw();
    listBad();
  });
}
byId("controls").addEventListener("submit", (event) => event.preventDefault());
for (const [id, change] of [["closer", () => map.zoom(0.7)], ["farther", () => map.zoom(1.4)], ["reset", () => map.reset()]]) {
  byId(id).addEventListener("click", () => map.grid && change());
}
addEventListener("hashchange", () => {
  readAddress();
  if (run) apply();
});
byId("panel").addEventListener("keydown", (event) => event.key === "Escape" && byId("map").focus());
onThemeChange(() => run && draw());
readAddress();
panel.empty("Reading the run …");
await load();
source.listen(hear, () => notice("The server does not answer. What is shown is what was known last."));
document.body.dataset.ready = "yes";
