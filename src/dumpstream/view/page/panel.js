// The panel: everything about the selected tensor. Every name from a capture is text, never markup.

import { exponentChart, histogram, lineChart } from "./charts.js";
import { badness } from "./measures.js";
import { make, numberText, sizeText, stepText, tensorText } from "./words.js";

const VERDICTS = { identical: "good", close: "good", different: "bad" };
/** What is shown of both sides: a name, and the fields of this run's and the other's. */
const SIDES = [["mean", "mean", "golden_mean"], ["std", "std", "golden_std"], ["NaN on this side only", "nan_mine", "nan_golden"], ["worst element", "worst_mine", "worst_golden"]];

/** The rows of one tensor in all steps, in order. */
function series(run, i) {
  const { process, operator, io, index, step } = run.columns;
  const found = [];
  for (let j = 0; j < run.rows; j++) {
    if (process[j] === process[i] && operator[j] === operator[i] && io[j] === io[i] && index[j] === index[i]) found.push(j);
  }
  return found.sort((a, b) => step[a] - step[b]);
}

/** The tensors of the same operator in the same step and process. */
function siblings(run, i) {
  const { process, operator, step } = run.columns;
  const found = [];
  for (let j = 0; j < run.rows; j++) {
    if (process[j] === process[i] && operator[j] === operator[i] && step[j] === step[i]) found.push(j);
  }
  return found;
}

export class Panel {
  constructor(element, { select }) {
    this.element = element;
    this.select = select;
    this.shown = null; // the name of a tensor
    this.asked = null; // stands for what was shown last
    this.isStale = false; // whether the run has grown before everything was there
  }

  empty(words, facts = {}) {
    this.shown = this.asked = null;
    const list = make("dl");
    this.facts(list, facts, 0);
    this.element.replaceChildren(make("p", { className: "empty", textContent: words }), list);
  }

  /** Shows the tensor that is row `i` of a run that has grown since it was shown first. */
  update(run, i) {
    this.chart.replaceWith((this.chart = this.line(run, i)));
  }

  /** Shows the tensor that is row `i`, and that the address calls `selected`. */
  async show(run, source, i, selected) {
    this.shown = selected;
    this.isStale = false;
    const asked = (this.asked = Symbol(selected));
    this.chart = this.line(run, i);
    const { columns } = run;
    const [model, type, name] = run.operators[columns.operator[i]];
    const step = stepText(run, columns.step[i]);
    const where = [type, tensorText(run, i), `step ${step}`, model && `model ${model}`, run.processes[columns.process[i]]];
    const facts = make("dl");
    const beside = make("div");
    const more = make("div");
    this.element.replaceChildren(
      make("h3", { textContent: name ?? type ?? "operator" }),
      make("p", { className: "where", textContent: where.filter(Boolean).join(" · ") }),
      this.choices(run, i),
      facts,
      beside,
      this.chart,
      more,
    );
    this.element.scrollTop = 0;
    this.facts(facts, { elements: columns.count[i], NaN: columns.nan[i], infinite: columns.inf[i], max: columns.max[i], min: columns.min[i], mean: columns.mean[i] }, badness(columns, i));
    await this.fill(run, source, i, asked, { facts, beside, more });
  }

  choices(run, i) {
    const list = make("ul", { ariaLabel: "Tensors of this operator" });
    for (const j of siblings(run, i)) {
      const button = make("button", { type: "button", textContent: tensorText(run, j) });
      button.setAttribute("aria-pressed", String(j === i));
      button.disabled = j === i;
      button.onclick = () => this.select(j, run);
      list.append(make("li", {}, button));
    }
    return list;
  }

  line(run, i) {
    const rows = series(run, i);
    const { columns } = run;
    const points = rows.map((j) => ({
      step: columns.step[j], name: stepText(run, columns.step[j]),
      max: columns.max[j], min: columns.min[j], mean: columns.mean[j], nan: columns.nan[j], inf: columns.inf[j],
    }));
    return make("div", {}, make("h4", { textContent: "Over the steps" }), lineChart(points, columns.step[i]),
      make("p", { className: "caption", textContent: "Band: smallest to largest. Line: mean. Bars: NaN or infinity." }));
  }

  facts(list, values, bad) {
    for (const [name, value] of Object.entries(values)) {
      if (value === null || value === undefined || Number.isNaN(value)) continue;
      const text = typeof value === "number" ? numberText(value) : String(value);
      const className = bad && value && (name === "NaN" || name === "infinite") ? "bad" : "";
      list.append(make("dt", { textContent: name }), make("dd", { textContent: text, className }));
    }
  }

  async fill(run, source, i, asked, { facts, beside, more }) {
    const row = run.columns.row[i];
    const waiting = make("p", { className: "empty", textContent: "Reading the run …" });
    more.append(waiting);
    try {
      const tensor = await source.tensor(row);
      if (this.asked !== asked) return;
      waiting.remove();
      if (!tensor) {
        more.append(make("p", { className: "empty", textContent: "The rest is only in the run itself: open it with dumpstream view." }));
        return;
      }
      const { dtype, shape, std, l2norm, zero, saturated, address, task, stream, problem } = tensor;
      this.facts(facts, { std, l2norm, zeros: zero, saturated, type: dtype, shape: shape && `[${shape.join(", ")}]`, address, task, stream, problem }, 0);
      if (tensor.against) this.against(beside, tensor.against);
      this.neighbours(more, "Comes from", tensor.from, run);
      this.neighbours(more, "Read by", tensor.to, run);
      this.place(more, tensor);
      const content = await source.content(row);
      if (this.asked === asked && content) this.content(more, content);
    } catch (error) {
      waiting.remove();
      if (this.asked !== asked) return;
      this.isStale = error.isStale ?? false;
      more.append(make("p", { className: "empty", textContent: error.message }));
    }
  }

  neighbours(more, title, found, run) {
    if (!found?.length) return;
    const list = make("ul");
    for (const it of found) {
      const words = `${it.op_name ?? "operator"} ${it.io} ${it.index}${it.proven ? "" : " (suggested)"}`;
      const button = make("button", { type: "button", textContent: words });
      button.onclick = () => {
        const i = run.columns.row.indexOf(it.row);
        if (i >= 0) this.select(i, run);
      };
      list.append(make("li", {}, button));
    }
    more.append(make("h4", { textContent: title }), list);
  }

  /** Both sides' numbers, and what the comparison says of them. */
  against(box, found) {
    const known = (value) => value !== null && value !== undefined;
    const text = (value) => (typeof value === "number" ? numberText(value) : known(value) ? String(value) : "–");
    const words = found.reason ? `${found.verdict}: ${found.reason}` : found.verdict;
    const facts = make("dl");
    const { rel_euclidean: relative, cosine, max_abs: largest, max_rel: worst, inf_differs: infinite, worst_index: place } = found;
    this.facts(facts, { "relative difference": relative, cosine, "largest difference": largest, "largest relative": worst, "infinities differ": infinite || null, "worst element at": place }, 0);
    const lines = SIDES.filter(([, mine, other]) => known(found[mine]) || known(found[other])).map(([name, mine, other]) =>
      make("tr", {}, make("th", { scope: "row", textContent: name }), make("td", { textContent: text(found[mine]) }), make("td", { textContent: text(found[other]) })));
    const head = ["", "this run", "other run"].map((title) => make("th", { scope: "col", textContent: title }));
    box.append(make("h4", { textContent: "Against the other run" }), make("p", { className: `verdict ${VERDICTS[found.verdict] ?? ""}`, textContent: words }));
    if (lines.length) box.append(make("table", { className: "sides" }, make("thead", {}, make("tr", {}, ...head)), make("tbody", {}, ...lines)));
    box.append(facts);
    if (found.golden) box.append(make("h4", { textContent: "Its file in the other run" }), make("code", { textContent: found.golden }));
  }

  place(more, { file, extract }) {
    more.append(make("h4", { textContent: "File" }), make("code", { textContent: file }));
    if (extract) more.append(make("h4", { textContent: "Extract it" }), make("code", { className: "command", textContent: extract }));
  }

  content(more, { header, tensor }) {
    if (tensor?.histogram) more.append(make("h4", { textContent: "Values" }), histogram(tensor.histogram));
    if (tensor?.exponents?.counts.length) more.append(make("h4", { textContent: "Exponents" }), exponentChart(tensor.exponents));
    if (tensor?.first?.length) {
      const short = (value) => (typeof value === "number" ? numberText(value) : String(value));
      const values = [...tensor.first.map(short), ...(tensor.last?.length ? ["…", ...tensor.last.map(short)] : [])];
      more.append(make("h4", { textContent: tensor.last?.length ? "First and last values" : "Values in order" }));
      more.append(make("p", { className: "values" }, ...values.flatMap((value) => [make("span", { textContent: value }), " "])));
    }
    if (tensor?.problem) more.append(make("p", { className: "empty", textContent: tensor.problem }));
    const facts = make("dl");
    const shown = { verdict: header.verdict, version: header.version, format: tensor?.format, size: header.bytes === undefined || header.bytes === null ? null : sizeText(header.bytes), problem: header.problem };
    this.facts(facts, shown, 0);
    more.append(make("h4", { textContent: "Header" }), facts);
  }
}
