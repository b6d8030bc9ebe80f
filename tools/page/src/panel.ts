//! The elements of the lanes' panel, and the figures in them.

import { button, h, milliseconds, setText, significant, whole } from "./dom.ts";
import { HistogramView } from "./histogram.ts";
import { firstFrom, type Past, type Report, type Step } from "./report.ts";
import { KvView, SlotsView } from "./slots.ts";
import { HEIGHT, KINDS, type Kind, type Palette } from "./timeline.ts";

const WINDOWS: [string, number][] = [["20 ms", 20_000], ["1 s", 1_000_000], ["5 s", 5_000_000], ["30 s", 30_000_000]];
const TILES = ["Running", "Waiting", "Decode lane busy", "Bubbles", "Rows per second"];
const KIND_NAMES: Record<Kind, string> = {
  front: "front lane at work",
  queue: "batch waits in the ring",
  prefill: "prefill",
  decode: "decode",
  mixed: "prefill and decode",
  sampling: "sampling",
  bubble: "bubble: work, but no step",
  late: "tokens that came late",
};
const HISTOGRAMS: [keyof Report["histograms"], string, string][] = [
  ["ttft_us", "TTFT", "From a request to its first token"],
  ["itl_us", "ITL", "Between two tokens of a request"],
  ["queue_us", "Queue", "From admission to a slot"],
  ["step_us", "Step", "One batch in the model"],
];

export class PanelView {
  readonly element: HTMLElement;
  readonly failure = h("p", { class: "state wrong", hidden: true });
  readonly pause = button("Pause", () => undefined, { class: "toggle" });
  readonly canvas = h("canvas", {
    height: HEIGHT,
    tabindex: 0,
    role: "slider",
    "aria-label": "Steps over time. Arrow keys choose a step, Space pauses.",
  });
  readonly #model = h("p", { class: "mono quiet" }, "…");
  readonly #tiles = TILES.map(() => h("dd", { class: "mono" }, "–"));
  readonly #readout = h("dl", { class: "readout", id: "readout" });
  readonly #swatches = KINDS.map((kind) => h("i", { class: "swatch", "data-kind": kind }));
  readonly #kv = new KvView();
  readonly #slots = new SlotsView();
  readonly #histograms = HISTOGRAMS.map(([, title, meaning]) => new HistogramView(title, meaning));
  #recent = false; // the histograms show the last minute

  /** `zoom` is called with the microseconds that the chart is to show. */
  constructor(zoom: (us: number) => void) {
    const windows = choice("Time shown", WINDOWS, 5_000_000, zoom);
    const spans = choice("Values", [["since start", 0], ["last minute", 1]], 0, (value) => (this.#recent = value === 1));
    const tiles = this.#tiles.map((value, i) => h("div", {}, h("dt", {}, TILES[i]!), value));
    const legend = KINDS.map((kind, i) => h("span", { class: "key" }, this.#swatches[i]!, KIND_NAMES[kind]));
    const histograms = this.#histograms.map((view) => view.element);
    this.element = h("div", { class: "panel" },
      h("div", { class: "title" }, h("h2", {}, "Lanes"), this.#model),
      this.failure,
      h("dl", { class: "tiles" }, ...tiles),
      h("section", {},
        h("div", { class: "title" }, windows, this.pause),
        this.canvas,
        this.#readout,
        h("p", { class: "legend" }, ...legend)),
      this.#kv.element,
      this.#slots.element,
      h("section", {},
        h("div", { class: "title" }, h("h3", {}, "Latency"), spans),
        h("div", { class: "histograms" }, ...histograms)));
    this.showStep(null);
  }

  update(report: Report, past: Past): void {
    const { busy, bubble, rows } = lastSecond(past, report.now_us);
    const waiting = `${whole(report.waiting)} / ${whole(report.queue_limit)}`;
    const figures = [whole(report.running), waiting, percent(busy), percent(bubble), whole(rows)];
    for (const [i, figure] of figures.entries()) setText(this.#tiles[i]!, figure);
    setText(this.#model, `${report.model} · ${report.kernels}`);
    this.#kv.update(report.kv);
    this.#slots.update(report.slots);
    for (const [i, [name]] of HISTOGRAMS.entries()) this.#histograms[i]!.update(report.histograms[name], this.#recent);
  }

  /** Shows the figures of a step, as text, so that readers of the screen have them too. */
  showStep(step: Step | null): void {
    const figures = step ? stepFigures(step) : [];
    const hint = h("dt", { class: "quiet" }, matchMedia("(pointer: coarse)").matches ? "Touch a step." : "Point at a step, or choose one with the arrow keys.");
    const cells = figures.map(([name, value]) => h("div", {}, h("dt", {}, name), h("dd", { class: "mono" }, value)));
    this.#readout.replaceChildren(...(step ? cells : [hint]));
    const text = step ? figures.map((pair) => pair.join(" ")).join(", ") : "No step chosen";
    this.canvas.setAttribute("aria-valuenow", String(step?.step ?? 0));
    this.canvas.setAttribute("aria-valuetext", text);
  }

  /** The colours of the chart are those of the legend and of the text around it. */
  palette(): Palette {
    const kinds = KINDS.map((kind, i) => [kind, getComputedStyle(this.#swatches[i]!).backgroundColor]);
    const { color: text, borderTopColor: line } = getComputedStyle(this.canvas);
    const { color: mark } = getComputedStyle(this.element);
    return { ...Object.fromEntries(kinds), text, line, mark } as Palette;
  }
}

function stepFigures(step: Step): [string, string][] {
  const us = (value: number): string => milliseconds(value / 1000);
  return [
    ["step", whole(step.step)],
    ["prefill rows", whole(step.prefill)],
    ["decode rows", whole(step.decode)],
    ["waited", us(Math.max(0, step.began - step.sent))],
    ["bubble", us(step.bubble)],
    ["model", us(step.modelled - step.began)],
    ["sampling", us(step.sampled - step.modelled)],
    ["way back", us(Math.max(0, step.received - step.sampled))],
    ["running", whole(step.running)],
    ["waiting", whole(step.waiting)],
    ["late tokens", step.late ? `${whole(step.late)}: ${step.cause}` : "0"],
  ];
}

/** Shares of the last second in which the decode lane ran, and in which it had work and did not. */
function lastSecond({ steps }: Past, now: number): { busy: number; bubble: number; rows: number } {
  const sum = { busy: 0, bubble: 0, rows: 0 };
  for (const step of steps.slice(firstFrom(steps, now - 1e6, (each) => each.received))) {
    sum.busy += (step.sampled - step.began) / 1e6;
    sum.bubble += step.bubble / 1e6;
    sum.rows += step.prefill + step.decode;
  }
  return sum;
}

function percent(share: number): string {
  return `${significant(Math.min(100, share * 100))} %`;
}

/** Buttons of which one is pressed. */
function choice(label: string, options: [string, number][], chosen: number, choose: (value: number) => void): HTMLElement {
  const buttons = options.map(([name, value]) => {
    const press = (): void => {
      for (const each of buttons) each.setAttribute("aria-pressed", String(each === own));
      choose(value);
    };
    const own: HTMLButtonElement = button(name, press, { "aria-pressed": String(value === chosen) });
    return own;
  });
  return h("div", { class: "choice-bar mono", role: "group", "aria-label": label }, ...buttons);
}
