// The measures by which the map is coloured. A larger severity hides a smaller one in the same place.

import { INFINITE, LOST, NAN, absent, fine, ramp, unknown } from "./colours.js";
import { countText, numberText } from "./words.js";

// Of places that hide every number beside them, in this order. A grid holds them exactly: they are powers of two.
const [LOST_SEVERITY, INFINITE_SEVERITY, NAN_SEVERITY] = [2 ** 124, 2 ** 125, 2 ** 126];

export const lostSeverity = (measure) => measure.lost ?? LOST_SEVERITY;

/** Returns the colour of a place, by the severity of its worst row. */
export function colourOf(measure, severity) {
  if (severity === lostSeverity(measure)) return LOST;
  if (severity === NAN_SEVERITY) return NAN;
  return severity === INFINITE_SEVERITY ? INFINITE : measure.colour(severity);
}

/** Says of a place how much it has to be seen, also if it is smaller than a pixel: 2 NaN, 1 infinity, 0 not. */
export const loudness = (measure, severity) => (severity >= (measure.nan ?? NAN_SEVERITY) ? 2 : severity >= (measure.infinite ?? INFINITE_SEVERITY) ? 1 : 0);

/** What is bad of a row: 2 NaN, 1 infinity, 0 nothing. */
export const badness = (columns, i) => (columns.nan[i] ? 2 : columns.inf[i] ? 1 : 0);

/** Returns a severity that is that of the `values`, unless the row has NaNs or infinities. */
const finite = (columns, values) => (i) => (columns.nan[i] ? NAN_SEVERITY : columns.inf[i] ? INFINITE_SEVERITY : values[i]);

const NOT_FINITE = [["infinity", () => INFINITE], ["NaN", () => NAN]];

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
  const power = (value) => `10^${numberText(Number(value.toPrecision(3)))}`;
  const badText = (i) => (columns.nan[i] || columns.inf[i] ? `; ${numberText(columns.nan[i])} NaN and ${numberText(columns.inf[i])} infinite` : "");
  const found = {
    bad: {
      title: "NaN and infinity",
      lost: 0.5, // a NaN beside it is still seen
      infinite: 1,
      nan: 2,
      severity: (i) => badness(columns, i),
      colour: (value) => (value >= 2 ? NAN : value >= 1 ? INFINITE : fine()),
      legend: [["neither", fine], ...NOT_FINITE],
      text: (i) => `${numberText(columns.nan[i])} NaN and ${numberText(columns.inf[i])} infinite of ${countText(columns.count[i], "element")}`,
    },
    magnitude: {
      title: "log10 of the largest magnitude",
      severity: finite(columns, columns.magnitude),
      colour: ranged(low, high),
      legend: { low: power(low), high: power(high), more: [...NOT_FINITE, ["all zero, or not known", unknown]] },
      text: (i) => (Number.isNaN(columns.magnitude[i]) ? "no finite element but zeros" : `largest finite magnitude ${power(columns.magnitude[i])}`) + badText(i),
    },
    drift: {
      title: "drift against the steps before",
      severity: finite(columns, columns.drift),
      colour: ranged(0, 8),
      legend: { low: "0", high: "8 deviations", more: [...NOT_FINITE, ["too few steps before it", unknown]] },
      text: (i) => (Number.isNaN(columns.drift[i]) ? "too few steps before it" : `${numberText(columns.drift[i])} deviations from the last five steps`) + badText(i),
    },
  };
  if (columns.difference) {
    // As the server has them: not a logarithm is what is identical, has no counterpart, or is NaN on one side.
    const text = (value) =>
      value >= 90 ? "NaN or infinity on one side only" : value <= -90 ? "identical" : value <= -40 ? "not compared" : `relative difference ${numberText(Number((10 ** value).toPrecision(3)))}`;
    found.difference = {
      title: "difference from the other run",
      lost: 98, // below what is NaN on one side
      infinite: 99,
      nan: 99,
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
