// The grid: one value for each place of the map, the worst of all rows that share it.

import { LOST_SEVERITY } from "./measures.js";

/** Which line of the map a row is on, for each way to arrange the map. */
const ARRANGEMENTS = {
  operators: { title: "operators", of: (run) => run.columns.operator, names: (run) => run.operators.map(operatorText) },
  ranks: { title: "ranks", of: (run) => run.columns.process, names: (run) => run.processes },
  models: {
    title: "models",
    of: (run) => {
      const models = modelsOf(run);
      const number = run.operators.map(([model]) => models.indexOf(model ?? "no model"));
      return Uint32Array.from(run.columns.operator, (operator) => number[operator]);
    },
    names: (run) => modelsOf(run),
  },
};

export const arrangements = Object.entries(ARRANGEMENTS).map(([name, { title }]) => [name, title]);

export const operatorText = ([model, type, name]) => `${name ?? type ?? "?"}${model ? ` · ${model}` : ""}`;

export const modelsOf = (run) => [...new Set(run.operators.map(([model]) => model ?? "no model"))];

/** Returns which rows the filters leave, or null if they leave all. */
function chosen(run, { rank, model, find }) {
  const wanted = find.trim().toLowerCase();
  if (rank === "" && model === "" && !wanted) return null;
  const operators = run.operators.map(
    ([of, type, name]) =>
      (model === "" || (of ?? "no model") === model) &&
      (!wanted || `${name} ${type}`.toLowerCase().includes(wanted)),
  );
  const { operator, process } = run.columns;
  return (i) => operators[operator[i]] && (rank === "" || process[i] === Number(rank));
}

/** Builds the grid of a run: lines without rows are left out, and `worst` has the row that each place shows. */
export function buildGrid(run, measure, view) {
  const arrangement = ARRANGEMENTS[view.lines] ?? ARRANGEMENTS.operators;
  const of = arrangement.of(run);
  const names = arrangement.names(run);
  const wanted = chosen(run, view);
  const used = new Uint8Array(names.length);
  const { step } = run.columns;
  for (let i = 0; i < run.rows; i++) if (!wanted || wanted(i)) used[of[i]] = 1;
  const lost = run.lost.filter(([process, , operator]) => {
    const [model, type, name] = run.operators[operator];
    const text = `${name} ${type}`.toLowerCase();
    return (view.rank === "" || process === Number(view.rank)) && (view.model === "" || (model ?? "no model") === view.model) &&
      text.includes(view.find.trim().toLowerCase());
  });
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
  const severity = new Float32Array(width * height).fill(-Infinity);
  const worst = new Int32Array(width * height).fill(-1);
  for (let i = 0; i < run.rows; i++) {
    if (wanted && !wanted(i)) continue;
    const at = place[of[i]] * width + step[i];
    const value = measure.severity(i);
    if (worst[at] < 0 || value > severity[at] || (Number.isNaN(severity[at]) && !Number.isNaN(value))) {
      severity[at] = value;
      worst[at] = i;
    }
  }
  for (const it of lost) severity[lineOfLost(it) >= 0 ? place[lineOfLost(it)] * width + it[1] : 0] = LOST_SEVERITY;
  return { width, height, severity, worst, names: lines.map((line) => names[line]), lines };
}
