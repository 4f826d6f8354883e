// Small drawings of one tensor: its line over steps, and its histogram.

import { INFINITE, NAN, css, isDark } from "./colours.js";
import { numberText } from "./words.js";

const SVG = "http://www.w3.org/2000/svg";
const [WIDTH, HEIGHT, EDGE] = [340, 120, 4];

function shape(name, attributes, ...children) {
  const element = document.createElementNS(SVG, name);
  for (const [key, value] of Object.entries(attributes)) element.setAttribute(key, value);
  element.append(...children);
  return element;
}

const soft = () => (isDark() ? "#97a3b6" : "#5b6778");

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
  const label = `Extremes and mean over ${points.length} steps, from ${numberText(low)} to ${numberText(high)}; ${bad} steps with NaN or infinity`;
  const drawing = shape("svg", { viewBox: `0 0 ${WIDTH} ${HEIGHT}`, role: "img", "aria-label": label });
  const last = Math.max(points.length - 1, 1);
  const x = (place) => (points.length === 1 ? WIDTH / 2 : EDGE + (place / last) * (WIDTH - 2 * EDGE));
  const y = (value) => HEIGHT - 18 - ((value - low) / (high - low || 1)) * (HEIGHT - 34);
  if (finite.length) {
    const known = (name) => points.map((it, place) => [place, it[name]]).filter(([, value]) => Number.isFinite(value));
    const band = [...known("max"), ...known("min").reverse()].map(([place, value]) => `${x(place)},${y(value)}`);
    drawing.append(shape("polygon", { points: band.join(" "), fill: isDark() ? "#2d4a6e" : "#cfe0f2" }));
    for (const name of ["max", "min"]) {
      const line = known(name).map(([place, value]) => `${x(place)},${y(value)}`);
      drawing.append(shape("polyline", { points: line.join(" "), fill: "none", stroke: isDark() ? "#6f9bd1" : "#7ba3cf" }));
    }
    const mean = known("mean").map(([place, value]) => `${x(place)},${y(value)}`);
    drawing.append(shape("polyline", { points: mean.join(" "), fill: "none", stroke: isDark() ? "#e6eaf1" : "#1a2230", "stroke-width": 1.5 }));
    if (points.length === 1) for (const name of ["max", "mean", "min"]) for (const [place, value] of known(name)) drawing.append(shape("circle", { cx: x(place), cy: y(value), r: 3, fill: soft() }));
    drawing.append(text(EDGE, 10, `max ${numberText(high)}`), text(WIDTH - EDGE, 10, `min ${numberText(low)}`, "end"));
  }
  points.forEach((point, place) => {
    const bad = point.nan ? NAN : point.inf ? INFINITE : null;
    if (bad) drawing.append(shape("rect", { x: x(place) - 2, y: 14, width: 4, height: HEIGHT - 32, fill: css(bad), opacity: 0.8 }));
  });
  const here = points.findIndex((it) => it.step === current);
  if (here >= 0) drawing.append(shape("line", { x1: x(here), x2: x(here), y1: 12, y2: HEIGHT - 16, stroke: soft(), "stroke-dasharray": "2 2" }));
  drawing.append(text(EDGE, HEIGHT - 4, `step ${points[0].name}`), text(WIDTH - EDGE, HEIGHT - 4, `step ${points.at(-1).name}`, "end"));
  return drawing;
}

/** Returns bars for counts, with words below their ends. */
function bars(label, counts, left, right, middle) {
  const most = counts.reduce((a, b) => Math.max(a, b), 1);
  const drawing = shape("svg", { viewBox: `0 0 ${WIDTH} 84`, role: "img", "aria-label": label });
  const width = (WIDTH - 2 * EDGE) / counts.length;
  counts.forEach((count, bin) => {
    const height = count ? Math.max((count / most) * 60, 1.5) : 0;
    drawing.append(shape("rect", { x: EDGE + bin * width, y: 64 - height, width: Math.max(Math.min(width, 40) - 1, 0.5), height, fill: isDark() ? "#6f9bd1" : "#5a8cc4" }));
  });
  drawing.append(text(EDGE, 78, left), text(WIDTH - EDGE, 78, right, "end"));
  if (middle) drawing.append(text(WIDTH / 2, 78, middle, "middle"));
  return drawing;
}

/** Returns bars for equal bins of the finite values. */
export function histogram({ low, high, counts, zeros }) {
  const [left, right] = [numberText(low), numberText(high)];
  return bars(`Histogram of the values from ${left} to ${right}`, counts, left, right, zeros ? `${zeros} zeros apart` : "");
}

/** Returns bars for the exponents of the finite values, to the base 2. */
export function exponentChart({ low, width, counts, zeros }) {
  const [left, right] = [`2^${low}`, `2^${low + width * counts.length}`];
  return bars(`Histogram of the exponents, from ${left} to ${right}`, counts, left, right, zeros ? `${zeros} zeros apart` : "");
}
