// Which pixels show which cells, and words that fit into a number of pixels.

/** Returns for each pixel the first cell that it shows and the one behind the last, or null for a gap. */
export function spans(pixels, start, cells, gap) {
  const found = new Array(pixels);
  for (let pixel = 0; pixel < pixels; pixel++) {
    const first = start + (pixel * cells) / pixels;
    const last = start + ((pixel + 1) * cells) / pixels;
    const cell = Math.floor(first + 1e-9);
    const begin = Math.ceil(((cell - start) * pixels) / cells - 1e-6); // its first pixel, so that all gaps are as wide
    const isGap = gap && pixel - begin < Math.round(gap);
    // Cells that are apart share no pixel.
    found[pixel] = isGap ? null : [cell, gap ? cell + 1 : Math.max(Math.ceil(last - 1e-9), cell + 1)];
  }
  return found;
}

/** Makes the stretches of bad pixels larger, the worst ones last, so that a single one is seen. */
export function grow(pixels, width, height, loud, across, down) {
  for (const level of [1, 2]) {
    for (const stretch of loud) {
      if (stretch.level !== level) continue;
      const y = Math.floor(stretch.start / width);
      const first = Math.max((stretch.start % width) - Math.max(across - 1, 0), 0);
      const end = Math.min(((stretch.end - 1) % width) + across + 1, width);
      for (let line = Math.max(y - Math.max(down - 1, 0), 0); line <= Math.min(y + down, height - 1); line++) {
        pixels.fill(stretch.colour, line * width + first, line * width + end);
      }
    }
  }
}

/** Returns `text`, shortened in the middle if it is wider than `width`. */
export function fitted(pen, text, width) {
  if (pen.measureText(text).width <= width) return text;
  let keep = text.length;
  if (keep > 400) keep = 400; // of a longer one, no more could fit
  while (keep > 4) {
    keep -= 1;
    const short = `${text.slice(0, Math.ceil(keep / 2))}…${text.slice(text.length - Math.floor(keep / 2))}`;
    if (pen.measureText(short).width <= width) return short;
  }
  return "…";
}
