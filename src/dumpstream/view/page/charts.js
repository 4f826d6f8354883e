// Small drawings of one tensor: its line over steps, and its histogram.

import { INFINITE, NAN, css, isDark } from "./colours.js";
import { countText, numberText } from "./words.js";

const SVG = "http://www.w3.org/2000/svg";
const [WIDTH, HEIGHT, EDGE] = [340, 132, 4];
const GUTTER = 56; // for the numbers of the axis

function shape(name, attributes, ...children) {
  const element = document.createElementNS(SVG, name);
  for (const [key, value] of Object.entries(attributes)) element.setAttribute(key, value);
  element.append(...children);
  return element;
}

const soft = () => (isDark() ? "#97a3b6" : "#5b6778");
const ink = () => (isDark() ? "#e6eaf1" : "#1a2230");
const faint = () => (isDark() ? "#2c3544" : "#d7dde6");

function text(x, y, words, anchor = "start") {
  const element = shape("text", { x, y, "font-size": 10, "text-anchor": anchor, fill: soft() });
  element.textContent = words;
  return element;
}

/** Returns extremes and mean of a tensor over steps; steps with NaNs or infinities are marked. */
export function lineChart(points, current) {
  const finite = points.flatMap(({ max, min, mean }) => [max, min, mean]).filter(Number.isFinite);
  const low = finite.reduce((a, b) => Math.min(a, b), Infinity);
  const high = finite.reduce((a, b) => Math.max(a, b), -Infinity);
  const bad = points.filter(({ nan, inf }) => nan || inf).length;
  const range = finite.length ? `from ${numberText(low)} to ${numberText(high)}` : "no finite value";
  const label = `Extremes and mean over ${countText(points.length, "step")}, ${range}; ${countText(bad, "step")} with NaN or infinity`;
  const drawing = shape("svg", { viewBox: `0 0 ${WIDTH} ${HEIGHT}`, role: "img", "aria-label": label });
  const [left, right, top, bottom] = [GUTTER, WIDTH - EDGE, 8, HEIGHT - 20];
  const last = Math.max(points.length - 1, 1);
  const x = (place) => (points.length === 1 ? (left + right) / 2 : left + (place / last) * (right - left));
  const y = (value) => bottom - ((value - low) / (high - low || 1)) * (bottom - top);
  const tick = (value) => [
    shape("line", { x1: left, x2: right, y1: y(value), y2: y(value), stroke: faint() }),
    text(left - 6, y(value) + 3.5, tickText(value), "end"),
  ];
  if (finite.length) {
    const ticks = low === high ? [low] : low < 0 && high > 0 && Math.min(-low, high) > (high - low) / 6 ? [low, 0, high] : [low, high];
    drawing.append(...ticks.flatMap(tick));
    const known = (name) => points.map((it, place) => [place, it[name]]).filter(([, value]) => Number.isFinite(value));
    const line = (name) => known(name).map(([place, value]) => `${x(place)},${y(value)}`);
    drawing.append(shape("polygon", { points: [...line("max"), ...line("min").reverse()].join(" "), fill: isDark() ? "#2d4a6e" : "#cfe0f2" }));
    for (const name of ["max", "min"]) drawing.append(shape("polyline", { points: line(name).join(" "), fill: "none", stroke: isDark() ? "#6f9bd1" : "#7ba3cf" }));
    drawing.append(shape("polyline", { points: line("mean").join(" "), fill: "none", stroke: isDark() ? "#e6eaf1" : "#1a2230", "stroke-width": 1.5 }));
    if (points.length === 1) for (const name of ["max", "mean", "min"]) for (const [place, value] of known(name)) drawing.append(shape("circle", { cx: x(place), cy: y(value), r: 3, fill: soft() }));
  }
  points.forEach((point, place) => {
    const colour = point.nan ? NAN : point.inf ? INFINITE : null;
    if (colour) drawing.append(shape("rect", { x: x(place) - 2, y: top, width: 4, height: bottom - top, fill: css(colour), opacity: 0.8 }));
  });
  const here = points.findIndex((it) => it.step === current);
  if (here >= 0) {
    drawing.append(shape("line", { x1: x(here), x2: x(here), y1: top - 4, y2: bottom + 5, stroke: ink(), "stroke-dasharray": "2 2" }));
    const words = text(Math.min(Math.max(x(here), left + 16), right - 16), HEIGHT - 5, `step ${points[here].name}`, "middle");
    words.setAttribute("fill", ink());
    drawing.append(words);
  }
  // The ends of the axis, unless the step that is shown has its name there.
  const apart = (place) => here < 0 || Math.abs(x(here) - x(place)) > 56;
  if (apart(0)) drawing.append(text(left, HEIGHT - 5, points[0].name));
  if (apart(points.length - 1)) drawing.append(text(right, HEIGHT - 5, points.at(-1).name, "end"));
  return drawing;
}

/** Returns a number for an axis, in as many letters as there is room for. */
function tickText(value) {
  const words = numberText(Number(value.toPrecision(4)));
  return words.length <= 8 ? words : value.toExponential(1);
}

/** Returns bars for counts, with words below their ends. */
function bars(label, counts, left, right, middle) {
  const most = counts.reduce((a, b) => Math.max(a, b), 1);
  const drawing = shape("svg", { viewBox: `0 0 ${WIDTH} 92`, role: "img", "aria-label": label });
  const width = Math.min((WIDTH - GUTTER - EDGE) / counts.length, 40);
  const end = GUTTER + width * counts.length;
  for (const [y, words] of [[10, tickText(most)], [72, "0"]]) {
    drawing.append(shape("line", { x1: GUTTER, x2: WIDTH - EDGE, y1: y, y2: y, stroke: faint() }), text(GUTTER - 6, y + 3.5, words, "end"));
  }
  counts.forEach((count, bin) => {
    const height = count ? Math.max((count / most) * 62, 1.5) : 0;
    drawing.append(shape("rect", { x: GUTTER + bin * width, y: 72 - height, width: Math.max(width - 1, 0.5), height, fill: isDark() ? "#6f9bd1" : "#5a8cc4" }));
  });
  drawing.append(text(GUTTER, 87, left));
  if (end > GUTTER + 90) drawing.append(text(end, 87, right, "end"));
  else drawing.append(text(end + 6, 87, `to ${right}`));
  if (middle) drawing.append(text((GUTTER + WIDTH) / 2, 87, middle, "middle"));
  return drawing;
}

/** Returns bars for equal bins of the finite values. */
export function histogram({ low, high, counts, zeros }) {
  const [left, right] = [numberText(low), numberText(high)];
  return bars(`Histogram of the values from ${left} to ${right}`, counts, left, right, zeros ? `without ${countText(zeros, "zero")}` : "");
}

/** Returns bars for the exponents of the finite values, to the base 2. */
export function exponentChart({ low, width, counts, zeros }) {
  const [left, right] = [`2^${low}`, `2^${low + width * counts.length}`];
  return bars(`Histogram of the exponents, from ${left} to ${right}`, counts, left, right, zeros ? `without ${countText(zeros, "zero")}` : "");
}
