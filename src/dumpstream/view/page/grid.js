// The grid: one value for each place of the map, the worst of all rows that share it.

import { badness, lostSeverity } from "./measures.js";

/** Places that a browser can draw at once. */
const MOST_PLACES = 1 << 26;

/** Which line of the map a row is on, for each way to arrange the map. */
const ARRANGEMENTS = {
  operators: { title: "operators", of: (run) => run.columns.operator, names: operatorNames },
  ranks: { title: "ranks", of: (run) => run.columns.process, names: (run) => run.processes },
  models: {
    title: "models",
    of: (run) => {
      const models = modelsOf(run);
      const number = run.operators.map(([model]) => models.indexOf(model ?? "no model"));
      const of = new Uint32Array(run.rows);
      for (let i = 0; i < run.rows; i++) of[i] = number[run.columns.operator[i]];
      return of;
    },
    names: (run) => modelsOf(run),
  },
};

export const arrangements = Object.entries(ARRANGEMENTS).map(([name, { title }]) => [name, title]);

function operatorNames(run) {
  return run.operators.map(([, type, name]) => name ?? type ?? "?");
}

/** The lines of the same model that are next to each other, if there are several models. */
function groupsOf(run, view, lines) {
  const of = (line) => run.operators[line]?.[0] ?? "no model";
  if ((view.lines in ARRANGEMENTS && view.lines !== "operators") || new Set(lines.map(of)).size < 2) return [];
  const groups = [];
  for (const [y, line] of lines.entries()) {
    if (groups.at(-1)?.name === of(line)) groups.at(-1).end = y + 1;
    else groups.push({ name: of(line), start: y, end: y + 1 });
  }
  return groups;
}

export const modelsOf = (run) => [...new Set(run.operators.map(([model]) => model ?? "no model"))];

/** Returns the process that is left, or -1, and which operators are; or null if the filters leave everything. */
function chosen(run, { rank, model, find }) {
  const wanted = find.trim().toLowerCase();
  if (rank === "" && model === "" && !wanted) return null;
  const process = run.processes.indexOf(rank); // a rank or model that the run has not does not hide all others
  model = modelsOf(run).includes(model) ? model : "";
  const operators = run.operators.map(
    ([of, type, name]) =>
      (model === "" || (of ?? "no model") === model) &&
      (!wanted || `${name} ${type}`.toLowerCase().includes(wanted)),
  );
  return { process, operators };
}

/** Returns the rows that the filters leave, as a function of their numbers. */
export function isChosen(run, view) {
  const wanted = chosen(run, view);
  if (!wanted) return () => true;
  const { operator, process } = run.columns;
  return (i) => wanted.operators[operator[i]] && (wanted.process < 0 || process[i] === wanted.process);
}

/** Builds the grid of a run: lines without rows are left out, `worst` has the row that each place shows, and
 * `bad` and `notWhole` say of each place whether it has such tensors. */
export function buildGrid(run, measure, view) {
  const arrangement = ARRANGEMENTS[view.lines] ?? ARRANGEMENTS.operators;
  const of = arrangement.of(run);
  const names = arrangement.names(run);
  const wanted = isChosen(run, view);
  const only = chosen(run, view);
  const used = new Uint8Array(names.length);
  const { step } = run.columns;
  for (let i = 0; i < run.rows; i++) if (wanted(i)) used[of[i]] = 1;
  const lost = run.lost.filter(([process, , operator]) => !only || (only.operators[operator] && (only.process < 0 || process === only.process)));
  const lineOfLost = ([process, , operator]) =>
    view.lines === "ranks" ? process : view.lines === "models" ? modelsOf(run).indexOf(run.operators[operator][0] ?? "no model") : operator;
  for (const it of lost) used[lineOfLost(it)] = 1;
  const lines = [];
  const place = new Int32Array(names.length).fill(-1);
  used.forEach((is, line) => {
    if (is) place[line] = lines.push(line) - 1;
  });
  const width = Math.max(run.steps.length, 1);
  const height = Math.max(lines.length, 1);
  if (width * height > MOST_PLACES) throw new Error(`${height} lines and ${width} steps are too many for one map: choose a model, or type a part of a name.`);
  const severity = new Float32Array(width * height).fill(-Infinity);
  const worst = new Int32Array(width * height).fill(-1);
  const bad = new Uint8Array(width * height);
  for (let i = 0; i < run.rows; i++) {
    if (!wanted(i)) continue;
    const at = place[of[i]] * width + step[i];
    const value = measure.severity(i);
    if (badness(run.columns, i)) bad[at] = 1;
    if (worst[at] < 0 || value > severity[at] || (Number.isNaN(severity[at]) && !Number.isNaN(value))) {
      severity[at] = value;
      worst[at] = i;
    }
  }
  const notWhole = new Uint8Array(width * height);
  for (const it of lost) {
    const at = place[lineOfLost(it)] * width + it[1];
    notWhole[at] = 1;
    if (!(severity[at] > lostSeverity(measure))) severity[at] = lostSeverity(measure);
  }
  return { width, height, severity, worst, bad, notWhole, names: lines.map((line) => names[line]), lines, groups: groupsOf(run, view, lines) };
}
