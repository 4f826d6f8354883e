// The map: a canvas on which every place of the grid is drawn, and which is zoomed, moved and walked.

import { css, ground, isDark } from "./colours.js";
import { colourOf, loudness } from "./measures.js";
import { fitted, grow, spans } from "./pixels.js";

const WIDEST_LEFT = 240; // of the names of lines
const NARROW_LEFT = 118; // the same on a narrow screen
const LEAST_LEFT = 56;
const MEASURED = 60; // names, the longest ones, of which the widest is looked for
const SEEN_FROM = 4; // pixels that a bad place has at least
const TOP = 7; // half a line of a name
const BOTTOM = 24;
const GAP_FROM = 7; // pixels of a cell, from which on cells are apart
const LABEL_FROM = 13; // pixels of a line, from which on every line has its name
const GROUP = 18; // pixels for the names of groups of lines
const FONT = "11px system-ui, 'DejaVu Sans', sans-serif";

export class StepMap {
  /** Calls `moved(place)` when the cursor moves, `opened(place, byKey)` when a place is chosen, and `zoomed` when the window changes. */
  constructor(canvas, { moved, opened, zoomed }) {
    this.canvas = canvas;
    this.moved = moved;
    this.opened = opened;
    this.zoomed = zoomed;
    this.grid = null;
    this.cursor = null; // {x, y}
    this.window = null; // {x, y, width, height} in cells
    new ResizeObserver(() => this.draw()).observe(canvas);
    canvas.addEventListener("wheel", (event) => this.onWheel(event), { passive: false });
    canvas.addEventListener("keydown", (event) => this.onKey(event));
    canvas.addEventListener("pointerdown", (event) => this.onDown(event));
    canvas.addEventListener("pointermove", (event) => this.onMove(event));
    canvas.addEventListener("pointerup", (event) => this.onUp(event));
    canvas.addEventListener("pointercancel", () => (this.drag = null));
  }

  show(grid, measure, stepNames) {
    const sameShape = this.grid && this.grid.width === grid.width && this.grid.height === grid.height;
    this.grid = grid;
    this.measure = measure;
    this.stepNames = stepNames;
    this.widest = this.widestName();
    if (!sameShape || !this.window) this.reset();
    if (this.cursor) this.cursor = this.clamp(this.cursor);
    this.draw();
  }

  /** The width of the widest name of a line, and of what is left of it. */
  widestName() {
    const pen = this.canvas.getContext("2d");
    pen.font = FONT;
    const longest = this.grid.names.toSorted((a, b) => b.length - a.length).slice(0, MEASURED);
    const widths = longest.map((name) => (name.length > 200 ? WIDEST_LEFT : pen.measureText(name).width));
    return Math.ceil(Math.max(0, ...widths)) + 12 + (this.grid.groups.length ? GROUP : 0);
  }

  reset() {
    this.window = { x: 0, y: 0, width: this.grid.width, height: this.grid.height };
    this.zoomed();
    this.draw();
  }

  get isWhole() {
    return this.window.width === this.grid.width && this.window.height === this.grid.height;
  }

  /** The window as text, which `look` takes again; empty if it is the whole map. */
  get looked() {
    const { x, y, width, height } = this.window;
    return this.isWhole ? "" : [x, y, width, height].map((value) => Number(value.toFixed(2))).join(",");
  }

  look(text) {
    const [x, y, width, height] = text.split(",").map(Number);
    if ([x, y, width, height].every(Number.isFinite)) this.window = { x, y, width, height };
    else this.window = { x: 0, y: 0, width: this.grid.width, height: this.grid.height };
    this.fix();
    this.draw();
  }

  clamp({ x, y }) {
    return { x: Math.min(Math.max(x, 0), this.grid.width - 1), y: Math.min(Math.max(y, 0), this.grid.height - 1) };
  }

  /** Moves the cursor, and the window if need be, so that the cursor is in it. */
  go(place) {
    this.cursor = this.clamp(place);
    const { x, y } = this.cursor;
    const view = this.window;
    if (x < view.x || x >= view.x + view.width) view.x = x - view.width / 2;
    if (y < view.y || y >= view.y + view.height) view.y = y - view.height / 2;
    this.fix();
    this.draw();
    this.moved(this.cursor);
  }

  fix() {
    const view = this.window;
    view.width = Math.min(Math.max(view.width, 4), this.grid.width);
    view.height = Math.min(Math.max(view.height, 4), this.grid.height);
    view.x = Math.min(Math.max(view.x, 0), this.grid.width - view.width);
    view.y = Math.min(Math.max(view.y, 0), this.grid.height - view.height);
  }

  area() {
    const most = this.canvas.clientWidth < 500 ? NARROW_LEFT : WIDEST_LEFT;
    const left = Math.min(Math.max(this.widest, LEAST_LEFT), most);
    return { left, top: TOP, width: Math.max(this.canvas.clientWidth - left - 4, 10), height: Math.max(this.canvas.clientHeight - BOTTOM - TOP, 10) };
  }

  placeAt(event) {
    const box = this.canvas.getBoundingClientRect();
    const area = this.area();
    const across = (event.clientX - box.left - area.left) / area.width;
    const down = (event.clientY - box.top - area.top) / area.height;
    if (across < 0 || across > 1 || down < 0 || down > 1) return null;
    const place = { x: this.window.x + across * this.window.width, y: this.window.y + down * this.window.height };
    return this.loudestNear(place, area) ?? this.clamp({ x: Math.floor(place.x), y: Math.floor(place.y) });
  }

  /** Returns the bad place that is drawn under a pointer, where places are too small to be pointed at; or null. */
  loudestNear({ x, y }, area) {
    const { grid, measure, window: view } = this;
    const [across, down] = [view.width / area.width, view.height / area.height].map((cells) => (cells > 1 / SEEN_FROM ? (cells * SEEN_FROM) / 2 : 0));
    if (!across && !down) return null;
    let found = null;
    let [most, nearest] = [0, 0];
    for (let line = Math.max(Math.floor(y - down), 0); line <= Math.min(y + down, grid.height - 1); line++) {
      for (let column = Math.max(Math.floor(x - across), 0); column <= Math.min(x + across, grid.width - 1); column++) {
        const loud = loudness(measure, grid.severity[line * grid.width + column]);
        const away = Math.hypot(column + 0.5 - x, line + 0.5 - y);
        if (loud > most || (loud && loud === most && away < nearest)) [found, most, nearest] = [{ x: column, y: line }, loud, away];
      }
    }
    return found;
  }

  zoom(factor, place) {
    const view = this.window;
    const at = place ?? this.cursor ?? { x: view.x + view.width / 2, y: view.y + view.height / 2 };
    const [across, down] = [(at.x + 0.5 - view.x) / view.width, (at.y + 0.5 - view.y) / view.height];
    view.width *= factor;
    view.height *= factor;
    view.width = Math.min(Math.max(view.width, 4), this.grid.width);
    view.height = Math.min(Math.max(view.height, 4), this.grid.height);
    view.x = at.x + 0.5 - across * view.width;
    view.y = at.y + 0.5 - down * view.height;
    this.fix();
    this.zoomed();
    this.draw();
  }

  onWheel(event) {
    if (!this.grid || (event.deltaY > 0 && this.isWhole)) return; // the page scrolls
    event.preventDefault();
    this.zoom(Math.exp(Math.min(Math.max(event.deltaY, -120), 120) / 400), this.placeAt(event));
  }

  onKey(event) {
    if (!this.grid || event.ctrlKey || event.metaKey || event.altKey) return;
    const at = this.cursor ?? { x: Math.floor(this.window.x), y: Math.floor(this.window.y) };
    const far = event.shiftKey ? 10 : 1;
    const actions = {
      ArrowLeft: () => this.go({ x: at.x - far, y: at.y }),
      ArrowRight: () => this.go({ x: at.x + far, y: at.y }),
      ArrowUp: () => this.go({ x: at.x, y: at.y - far }),
      ArrowDown: () => this.go({ x: at.x, y: at.y + far }),
      Home: () => this.go({ x: 0, y: at.y }),
      End: () => this.go({ x: this.grid.width - 1, y: at.y }),
      Enter: () => this.opened(at, true),
      " ": () => this.opened(at, true),
      "+": () => this.zoom(0.7),
      "-": () => this.zoom(1.4),
      0: () => this.reset(),
      n: () => this.nextBad(at, 1),
      N: () => this.nextBad(at, 1),
      p: () => this.nextBad(at, -1),
      P: () => this.nextBad(at, -1),
    };
    const action = actions[event.key];
    if (!action) return;
    event.preventDefault();
    action();
  }

  /** Goes to the next place, step by step, that has a bad row. */
  nextBad(from, direction) {
    const { width, height } = this.grid;
    const total = width * height;
    const order = (place) => place.x * height + place.y;
    for (let i = 1; i <= total; i++) {
      const at = (order(from) + direction * i + total * 2) % total;
      const place = { x: Math.floor(at / height), y: at % height };
      if (this.isBad(place)) return this.go(place);
    }
    return undefined;
  }

  isBad({ x, y }) {
    return this.grid.bad[y * this.grid.width + x] > 0;
  }

  onDown(event) {
    if (!this.grid) return;
    this.drag = { x: event.clientX, y: event.clientY, moved: false, window: { ...this.window } };
    this.canvas.setPointerCapture(event.pointerId);
  }

  onMove(event) {
    if (!this.grid) return;
    if (!this.drag) {
      const place = this.placeAt(event);
      if (place && event.pointerType === "mouse") this.moved(place);
      return;
    }
    const [across, down] = [event.clientX - this.drag.x, event.clientY - this.drag.y];
    if (Math.abs(across) + Math.abs(down) > 4) this.drag.moved = true;
    if (!this.drag.moved) return;
    const area = this.area();
    this.window.x = this.drag.window.x - (across / area.width) * this.window.width;
    this.window.y = this.drag.window.y - (down / area.height) * this.window.height;
    this.fix();
    this.draw();
  }

  onUp(event) {
    const drag = this.drag;
    this.drag = null;
    if (drag?.moved) this.zoomed();
    if (!drag || drag.moved) return;
    const place = this.placeAt(event);
    if (place) {
      this.go(place);
      this.opened(place);
    }
  }

  draw() {
    if (!this.grid || !this.window || this.waiting) return;
    this.waiting = true;
    requestAnimationFrame(() => {
      this.waiting = false;
      this.paint();
    });
  }

  paint() {
    const scale = devicePixelRatio || 1;
    const { canvas } = this;
    canvas.width = Math.round(canvas.clientWidth * scale);
    canvas.height = Math.round(canvas.clientHeight * scale);
    const pen = canvas.getContext("2d");
    pen.clearRect(0, 0, canvas.width, canvas.height);
    const area = this.area();
    canvas.dataset.left = area.left; // where its places begin
    this.paintCells(pen, area, scale);
    pen.scale(scale, scale);
    this.paintNames(pen, area);
    this.paintGroups(pen, area);
    this.paintCursor(pen, area);
  }

  paintCells(pen, area, scale) {
    const [width, height] = [Math.max(Math.round(area.width * scale), 1), Math.max(Math.round(area.height * scale), 1)];
    const { grid, window: view, measure } = this;
    const image = pen.createImageData(width, height);
    const pixels = new Uint32Array(image.data.buffer);
    const coloured = new Map();
    const packed = ([red, green, blue]) => (255 << 24) | (blue << 16) | (green << 8) | red;
    const empty = packed(ground());
    const colour = (value) => {
      let found = coloured.get(value);
      if (found === undefined) coloured.set(value, (found = packed(colourOf(measure, value))));
      return found;
    };
    const [cellWidth, cellHeight] = [width / view.width, height / view.height];
    const seen = SEEN_FROM * scale;
    const grown = Math.min(cellWidth, cellHeight) < seen;
    const loud = []; // stretches of bad pixels
    const columns = spans(width, view.x, view.width, cellWidth >= GAP_FROM * scale ? scale : 0);
    const lines = spans(height, view.y, view.height, cellHeight >= GAP_FROM * scale ? scale : 0);
    for (let y = 0; y < height; y++) {
      const line = lines[y];
      if (y && line && lines[y - 1] && line[0] === lines[y - 1][0] && line[1] === lines[y - 1][1]) {
        pixels.copyWithin(y * width, (y - 1) * width, y * width);
        continue;
      }
      for (let x = 0; x < width; x++) {
        const column = columns[x];
        let value = -Infinity;
        let known = false;
        if (line && column) {
          for (let row = line[0]; row < line[1]; row++) {
            for (let at = row * grid.width + column[0], end = row * grid.width + column[1]; at < end; at++) {
              const severity = grid.severity[at];
              if (severity === -Infinity) continue;
              if (!known || severity > value || Number.isNaN(value)) value = Number.isNaN(severity) && known ? value : severity;
              known = true;
            }
          }
        }
        pixels[y * width + x] = known ? colour(value) : line && column ? empty : 0;
        const level = grown && known ? loudness(measure, value) : 0;
        if (!level) continue;
        const at = y * width + x;
        const before = loud.at(-1);
        if (before && before.end === at && before.level === level && x) before.end = at + 1;
        else loud.push({ start: at, end: at + 1, level, colour: pixels[at] });
      }
    }
    if (grown) grow(pixels, width, height, loud, ...[cellWidth, cellHeight].map((cell) => (cell < seen ? Math.round(seen / 2) : 0)));
    pen.putImageData(image, Math.round(area.left * scale), Math.round(area.top * scale));
  }

  paintNames(pen, area) {
    const { grid, window: view } = this;
    const dark = isDark();
    pen.font = FONT;
    pen.fillStyle = dark ? "#97a3b6" : "#5b6778";
    pen.textBaseline = "middle";
    const cellHeight = area.height / view.height;
    const every = Math.max(1, Math.ceil(LABEL_FROM / cellHeight));
    for (let y = Math.ceil(view.y / every) * every; y < view.y + view.height; y += every) {
      const at = area.top + (y + 0.5 - view.y) * cellHeight;
      if (at > area.top && at < area.top + area.height) {
        pen.textAlign = "right";
        const room = area.left - 10 - (grid.groups.length ? GROUP : 0);
        pen.fillText(fitted(pen, grid.names[y] ?? "", room), area.left - 6, at);
      }
    }
    pen.textAlign = "center";
    pen.textBaseline = "top";
    const cellWidth = area.width / view.width;
    const step = Math.max(1, Math.ceil(46 / cellWidth));
    for (let x = Math.ceil(view.x / step) * step; x < view.x + view.width; x += step) {
      pen.fillText(this.stepNames[x], area.left + (x + 0.5 - view.x) * cellWidth, area.top + area.height + 6);
    }
    pen.textAlign = "right";
    pen.fillText("step", area.left - 6, area.top + area.height + 6);
  }

  /** Names the groups of lines along the edge, each beside a line as long as the group. */
  paintGroups(pen, area) {
    const { window: view } = this;
    const at = (y) => area.top + Math.min(Math.max((y - view.y) / view.height, 0), 1) * area.height;
    pen.textAlign = "center";
    pen.textBaseline = "middle";
    for (const { name, start, end } of this.grid.groups) {
      const [top, bottom] = [at(start), at(end)];
      if (bottom - top < 3) continue;
      pen.fillRect(GROUP - 3, top + 1, 1, bottom - top - 2);
      const words = fitted(pen, name, bottom - top - 4);
      if (words.length < 4 && words !== name) continue;
      pen.save();
      pen.translate(GROUP / 2 - 2, (top + bottom) / 2);
      pen.rotate(-Math.PI / 2);
      pen.fillText(words, 0, 0);
      pen.restore();
    }
  }

  paintCursor(pen, area) {
    if (!this.cursor) return;
    const { window: view } = this;
    const [width, height] = [area.width / view.width, area.height / view.height];
    const [x, y] = [area.left + (this.cursor.x - view.x) * width, area.top + (this.cursor.y - view.y) * height];
    if (x < area.left - 1 || y < area.top - 1 || x > area.left + area.width || y > area.top + area.height) return;
    pen.lineWidth = 2;
    pen.strokeStyle = isDark() ? "#ffffff" : "#0b1220";
    pen.strokeRect(x - 1, y - 1, Math.max(width, 5) + 1, Math.max(height, 5) + 1);
  }
}
