// The measures by which the map is coloured. A larger severity hides a smaller one in the same place.

import { INFINITE, LOST, NAN, absent, fine, ramp, unknown } from "./colours.js";
import { numberText } from "./words.js";

/** Of a place whose file is not whole, for measures that do not say otherwise: it hides everything else. */
const LOST_SEVERITY = 3e38;

export const lostSeverity = (measure) => measure.lost ?? LOST_SEVERITY;

/** Returns the colour of a place, by the severity of its worst row. */
export const colourOf = (measure, severity) => (severity === lostSeverity(measure) ? LOST : measure.colour(severity));

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
      legend: { low: numberText(Number(low.toPrecision(3))), high: numberText(Number(high.toPrecision(3))) },
      text: (i) => `largest magnitude 10^${numberText(columns.magnitude[i])}`,
    },
    drift: {
      title: "drift against the steps before",
      severity: (i) => columns.drift[i],
      colour: ranged(0, 8),
      legend: { low: "0", high: "8 deviations" },
      text: (i) => `${numberText(columns.drift[i])} deviations from the last five steps`,
    },
  };
  if (columns.difference) {
    // As the server has them: not a logarithm is what is identical, has no counterpart, or is NaN on one side.
    const text = (value) =>
      value >= 90 ? "NaN or infinity on one side only" : value <= -90 ? "identical" : value <= -40 ? "not compared" : `relative difference 10^${numberText(value)}`;
    found.difference = {
      title: "difference from the other run",
      severity: (i) => columns.difference[i],
      colour: (value) => (value >= 90 ? NAN : value <= -90 ? fine() : value <= -40 ? absent() : ramp((value + 8) / 8)),
      legend: { low: "10^-8", high: "1", more: [["identical", fine], ["NaN or infinity on one side", () => NAN], ["not compared", absent]] },
      text: (i) => text(columns.difference[i]),
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
