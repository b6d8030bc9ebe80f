//! Draws the lanes over time on a canvas.
//!
//! A column of pixels can span many steps. Each column therefore adds up the time of each kind, and
//! shows the kinds stacked by their share. Where steps are wider than a pixel this is a plain chart
//! of bars; where they are narrower it shows how busy the lane was. Nothing is dropped.

import { firstFrom, type Past, type Step } from "./report.ts";

/** Kinds of time and of rows. Each has a colour, which the legend defines. */
export const KINDS = ["front", "queue", "prefill", "decode", "mixed", "sampling", "bubble", "late"] as const;
export type Kind = (typeof KINDS)[number];
export type Palette = Record<Kind | "text" | "line" | "mark", string>;

export interface Scene {
  past: Past;
  from: number; // microseconds of the server's clock
  to: number;
  selected: Step | null;
}

interface Row {
  label: string;
  top: number;
  height: number;
}
const ROWS = {
  front: { label: "front", top: 8, height: 18 },
  queue: { label: "ring", top: 36, height: 18 },
  decode: { label: "decode", top: 64, height: 44 },
  rows: { label: "rows", top: 122, height: 56 },
} satisfies Record<string, Row>;
/** Under the steps: those with tokens that came too late. */
const LATE: Row = { label: "", top: 112, height: 5 };
const AXIS_TOP = 184;
/** Height of the canvas, in CSS pixels. */
export const HEIGHT = 206;
/** Pixels left of the plot, for the labels. */
export const GUTTER = 52;

/** Draws a scene. */
export function draw(canvas: HTMLCanvasElement, scene: Scene, palette: Palette): void {
  const ratio = devicePixelRatio || 1;
  const width = canvas.clientWidth;
  const pixels = { width: Math.round(width * ratio), height: Math.round(HEIGHT * ratio) };
  if (canvas.width !== pixels.width || canvas.height !== pixels.height) Object.assign(canvas, pixels);
  const pen = canvas.getContext("2d")!;
  pen.setTransform(ratio, 0, 0, ratio, 0, 0);
  pen.clearRect(0, 0, width, HEIGHT);
  const plot = { left: GUTTER, width: Math.max(1, width - GUTTER), columns: Math.max(1, Math.round((width - GUTTER) * ratio)) };

  drawAxis(pen, scene, palette, plot);
  const { past, from, to } = scene;
  const ticks = past.ticks.slice(firstFrom(past.ticks, from, (tick) => tick.ended));
  const steps = past.steps.slice(firstFrom(past.steps, from, (step) => step.received));

  const front = new Columns(plot.columns, from, to, ["front"]);
  for (const tick of ticks) front.add(0, tick.began, tick.ended);
  const queue = new Columns(plot.columns, from, to, ["queue"]);
  const decode = new Columns(plot.columns, from, to, ["prefill", "mixed", "decode", "sampling", "bubble"]);
  const late = new Columns(plot.columns, from, to, ["late"]);
  for (const step of steps) {
    if (step.late) late.add(0, step.began - step.bubble, step.sampled);
    queue.add(0, step.sent, step.began);
    decode.add(step.prefill === 0 ? 2 : step.decode === 0 ? 0 : 1, step.began, step.modelled);
    decode.add(3, step.modelled, step.sampled);
    decode.add(4, step.began - step.bubble, step.began);
  }
  front.paint(pen, ROWS.front, plot, palette);
  queue.paint(pen, ROWS.queue, plot, palette);
  decode.paint(pen, ROWS.decode, plot, palette);
  late.paint(pen, LATE, plot, palette);
  drawRows(pen, scene, steps, palette, plot);
  if (scene.selected) drawSelected(pen, scene, scene.selected, palette, plot);
}

interface Plot {
  left: number;
  width: number;
  columns: number;
}

/** Time of each kind in each column of pixels. */
class Columns {
  readonly #shares: Float32Array[]; // for each kind, [columns], in columns: 1 is a full column
  readonly #kinds: Kind[];
  readonly #from: number;
  readonly #perColumn: number;

  constructor(columns: number, from: number, to: number, kinds: Kind[]) {
    this.#kinds = kinds;
    this.#shares = kinds.map(() => new Float32Array(columns));
    this.#from = from;
    this.#perColumn = (to - from) / columns;
  }

  add(kind: number, began: number, ended: number): void {
    const share = this.#shares[kind]!;
    const first = Math.max(0, (began - this.#from) / this.#perColumn);
    const last = Math.min(share.length, (ended - this.#from) / this.#perColumn);
    for (let column = Math.floor(first); column < last; column += 1) {
      share[column]! += Math.min(column + 1, last) - Math.max(column, first);
    }
  }

  /** Neighbours of one kind that are full are painted as one rectangle. */
  paint(pen: CanvasRenderingContext2D, row: Row, plot: Plot, palette: Palette): void {
    const size = plot.width / plot.columns;
    const below = new Float32Array(plot.columns);
    for (const [kind, share] of this.#shares.entries()) {
      pen.fillStyle = palette[this.#kinds[kind]!];
      for (let column = 0; column < share.length; ) {
        const height = Math.min(share[column]!, 1 - below[column]!);
        let end = column + 1;
        while (end < share.length && share[end] === share[column] && below[end] === below[column]) end += 1;
        if (height > 0) {
          // A moment must not vanish: it is at least one pixel high.
          const high = Math.max(1, height * row.height);
          const bottom = row.top + row.height * (1 - below[column]!);
          pen.fillRect(plot.left + column * size, bottom - high, (end - column) * size, high);
        }
        for (; column < end; column += 1) below[column]! += height;
      }
    }
  }
}

/** The rows of each step as a stacked bar; in each column, those of its largest step. */
function drawRows(pen: CanvasRenderingContext2D, { from, to }: Scene, steps: Step[], palette: Palette, plot: Plot): void {
  const [prefill, decode] = [new Uint16Array(plot.columns), new Uint16Array(plot.columns)];
  const scale = plot.columns / (to - from);
  let most = 1;
  for (const step of steps) {
    const first = Math.max(0, Math.floor((step.began - from) * scale));
    const last = Math.min(plot.columns - 1, Math.max(first, Math.ceil((step.modelled - from) * scale) - 1));
    for (let column = first; column <= last; column += 1) {
      if (step.prefill + step.decode <= prefill[column]! + decode[column]!) continue;
      [prefill[column], decode[column]] = [step.prefill, step.decode];
    }
    if (first <= last) most = Math.max(most, step.prefill + step.decode);
  }
  const { top, height } = ROWS.rows;
  const size = plot.width / plot.columns;
  for (let column = 0; column < plot.columns; column += 1) {
    const low = (decode[column]! / most) * height;
    const high = (prefill[column]! / most) * height;
    pen.fillStyle = palette.decode;
    if (low) pen.fillRect(plot.left + column * size, top + height - low, size, low);
    pen.fillStyle = palette.prefill;
    if (high) pen.fillRect(plot.left + column * size, top + height - low - high, size, high);
  }
  pen.fillStyle = palette.text;
  pen.textAlign = "right";
  pen.fillText(String(most), plot.left - 8, top + 4);
}

function drawAxis(pen: CanvasRenderingContext2D, { from, to }: Scene, palette: Palette, plot: Plot): void {
  pen.font = "11px ui-monospace, Menlo, Consolas, monospace";
  pen.textBaseline = "middle";
  pen.fillStyle = palette.text;
  pen.textAlign = "left";
  for (const { label, top, height } of Object.values(ROWS)) {
    pen.fillText(label, 0, label === "rows" ? top + height - 5 : top + height / 2);
    pen.fillStyle = palette.line;
    pen.fillRect(plot.left, top + height, plot.width, 1);
    pen.fillStyle = palette.text;
  }
  const parts = plot.width < 360 ? 4 : 5;
  for (let part = 0; part <= parts; part += 1) {
    const x = plot.left + (plot.width * part) / parts;
    pen.fillStyle = palette.line;
    pen.fillRect(Math.min(x, plot.left + plot.width - 1), ROWS.front.top, 1, AXIS_TOP - ROWS.front.top);
    pen.fillStyle = palette.text;
    pen.textAlign = part === 0 ? "left" : part === parts ? "right" : "center";
    pen.fillText(timeLabel(((to - from) * (part - parts)) / parts), x, AXIS_TOP + 12);
  }
}

function timeLabel(us: number): string {
  if (us === 0) return "0";
  const text = Math.abs(us) >= 100_000 ? `${Number((-us / 1e6).toFixed(2))} s` : `${Number((-us / 1e3).toFixed(1))} ms`;
  return `−${text}`;
}

function drawSelected(pen: CanvasRenderingContext2D, { from, to }: Scene, step: Step, palette: Palette, plot: Plot): void {
  const x = (time: number): number => plot.left + ((time - from) / (to - from)) * plot.width;
  const left = Math.max(plot.left, x(step.began));
  const width = Math.max(2, x(step.sampled) - left);
  if (left > plot.left + plot.width || x(step.sampled) < plot.left) return;
  pen.strokeStyle = palette.mark;
  pen.lineWidth = 1.5;
  pen.strokeRect(left - 1, ROWS.decode.top - 3, width + 2, ROWS.decode.height + 6);
  pen.fillStyle = palette.mark;
  pen.fillRect(left, ROWS.rows.top - 8, width, 2);
}
