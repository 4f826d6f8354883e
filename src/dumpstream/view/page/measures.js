// The measures by which the map is coloured. A larger severity hides a smaller one in the same place.

import { INFINITE, LOST, NAN, fine, ramp, unknown } from "./colours.js";

/** Of a place whose file is not whole, for measures that do not say otherwise: it hides everything else. */
const LOST_SEVERITY = 3e38;

export const lostSeverity = (measure) => measure.lost ?? LOST_SEVERITY;

/** Returns the colour of a place, by the severity of its worst row. */
export const colourOf = (measure, severity) => (severity === lostSeverity(measure) ? LOST : measure.colour(severity));

const number = (value) =>
  value === null || Number.isNaN(value) ? "not known" : Math.abs(value) >= 1e5 || (value && Math.abs(value) < 1e-3) ? value.toExponential(3) : String(Number(value.toPrecision(6)));

export const numberText = number;

/** What is bad of a row: 2 NaN, 1 infinity, 0 nothing. */
export const badness = (columns, i) => (columns.nan[i] ? 2 : columns.inf[i] ? 1 : 0);

const ranged = (low, high) => (value) => (Number.isNaN(value) ? unknown() : ramp((value - low) / (high - low || 1)));

function extent(values) {
  let low = Infinity;
  let high = -Infinity;
  for (const value of values) {
    if (value < low) low = value;
    if (value > high) high = value;
  }
  return low <= high ? [low, high] : [0, 1];
}

/** Returns the measures that the run has, by their names. */
export function measuresOf(run) {
  const { columns } = run;
  const [low, high] = extent(columns.magnitude);
  const found = {
    bad: {
      title: "NaN and infinity",
      lost: 0.5, // a NaN beside it is still seen
      severity: (i) => badness(columns, i),
      colour: (value) => (value >= 2 ? NAN : value >= 1 ? INFINITE : fine()),
      legend: [["no NaN, no infinity", fine], ["infinity", () => INFINITE], ["NaN", () => NAN]],
      text: (i) => `${columns.nan[i]} NaN and ${columns.inf[i]} infinite of ${columns.count[i]} elements`,
    },
    magnitude: {
      title: "log10 of the largest magnitude",
      severity: (i) => columns.magnitude[i],
      colour: ranged(low, high),
      legend: { low: number(low), high: number(high) },
      text: (i) => `largest magnitude 10^${number(columns.magnitude[i])}`,
    },
    drift: {
      title: "drift against the steps before",
      severity: (i) => columns.drift[i],
      colour: ranged(0, 8),
      legend: { low: "0", high: "8 deviations" },
      text: (i) => `${number(columns.drift[i])} deviations from the last five steps`,
    },
  };
  if (columns.difference) {
    found.difference = {
      title: "difference from the other run",
      severity: (i) => columns.difference[i],
      colour: ranged(-8, 0),
      legend: { low: "10^-8", high: "1" },
      text: (i) => `relative difference 10^${number(columns.difference[i])}`,
    };
  }
  found.lost = {
    title: "what was lost",
    severity: () => 0,
    colour: () => fine(),
    legend: [["captured", fine]],
    text: () => "captured",
  };
  return found;
}
