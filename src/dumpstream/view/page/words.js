// Elements and numbers as a page shows them. Every name from a capture is text, never markup.

/** Returns an element with properties and children; strings become text. */
export function make(name, properties = {}, ...children) {
  const element = Object.assign(document.createElement(name), properties);
  element.append(...children.filter((child) => child !== null && child !== undefined));
  return element;
}

export const byId = (id) => document.getElementById(id);

export function numberText(value) {
  if (value === null || Number.isNaN(value)) return "not known";
  const size = Math.abs(value);
  if (Number.isInteger(value) && size < 1e9) return value.toLocaleString("en");
  if (size >= 1e9 || size < 1e-3) return Number(value.toPrecision(5)).toExponential();
  return value.toLocaleString("en", { maximumSignificantDigits: 6 });
}

export const countText = (count, noun) => `${count.toLocaleString("en")} ${noun}${count === 1 ? "" : "s"}`;

export function sizeText(size) {
  const units = ["B", "kB", "MB", "GB", "TB", "PB"];
  let unit = 0;
  for (; size >= 999.5 && unit < units.length - 1; unit++) size /= 1000;
  return `${unit && size < 99.95 ? size.toFixed(1) : Math.round(size)} ${units[unit]}`;
}

export const stepText = (run, step) => (run.steps[step] === null ? "not known" : String(run.steps[step]));

export const IO = ["input", "output", "buffer", "space"];
export const tensorText = (run, i) => `${IO[run.columns.io[i]]} ${run.columns.index[i]}`;
