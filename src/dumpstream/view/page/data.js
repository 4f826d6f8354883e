// What the page knows of the run: columns of numbers, and where to ask for more.

/** Returns the header and the typed columns in the bytes that the server packed. */
export function unpack(buffer) {
  const length = new DataView(buffer).getUint32(0, true);
  const header = JSON.parse(new TextDecoder().decode(new Uint8Array(buffer, 4, length)));
  const columns = {};
  let offset = 4 + length;
  for (const { name, type, length: count } of header.columns) {
    const Column = globalThis[`${type}Array`];
    columns[name] = new Column(buffer, offset, count);
    offset += Math.ceil((count * Column.BYTES_PER_ELEMENT) / 8) * 8;
  }
  return { ...header, columns, rows: columns.row?.length ?? 0 };
}

async function asked(path, method = "GET") {
  const answer = await fetch(path, { method, cache: "no-store" });
  if (!answer.ok) throw new Error((await answer.text()).slice(0, 500) || answer.statusText);
  return answer;
}

/** A run that a server reads, which may be growing. */
export class ServedRun {
  live = true;
  version = ""; // of the run whose rows the page knows

  async load() {
    const answer = await asked("api/run");
    if (answer.status === 204) return null;
    const run = unpack(await answer.arrayBuffer());
    this.version = run.status.version;
    return run;
  }

  /** Returns the columns of the difference from another run, or null if they do not fit the `run`. */
  async against({ rows }) {
    const answer = await asked("api/against");
    if (answer.status === 204) return null;
    const { columns } = unpack(await answer.arrayBuffer());
    return columns.difference.length === rows ? columns : null;
  }

  /** Asks for statistics to be computed. */
  async ask() {
    await asked("api/statistics", "POST");
  }

  async tensor(row) {
    return this.about("tensor", row);
  }

  async content(row) {
    return this.about("content", row);
  }

  /** Returns what the server knows of a row, if the row has the same number there. */
  async about(what, row) {
    const answer = await asked(`api/${what}/${row}?version=${encodeURIComponent(this.version)}`);
    if (answer.status === 204) throw Object.assign(new Error("The run has grown. The tensor is shown again in a moment."), { isStale: true });
    return answer.json();
  }

  /** Calls `heard` with every status of the run, and `lost` when the server does not answer. */
  listen(heard, lost) {
    const events = new EventSource("api/events");
    events.onmessage = (event) => heard(JSON.parse(event.data));
    events.onerror = () => lost();
  }
}

function bytesOf(base64) {
  const text = atob(base64);
  const bytes = new Uint8Array(text.length);
  for (let i = 0; i < text.length; i++) bytes[i] = text.charCodeAt(i);
  return bytes;
}

/** A run inside the page itself. */
export class EmbeddedRun {
  live = false;

  constructor(element) {
    this.element = element;
    this.details = {};
  }

  async load() {
    const packed = new Blob([bytesOf(this.element.textContent)]).stream();
    const buffer = await new Response(packed.pipeThrough(new DecompressionStream("gzip"))).arrayBuffer();
    const data = unpack(buffer);
    this.details = data.details;
    return data;
  }

  async tensor(row) {
    return this.details[row]?.tensor ?? null;
  }

  async content(row) {
    return this.details[row]?.content ?? null;
  }

  async against({ columns }) {
    return columns.difference ? {} : null;
  }

  listen() {}
}
