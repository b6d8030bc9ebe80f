//! The lanes, live: asks `GET /lanes` while the panel can be seen, draws the answers, and lets the
//! reader stop the chart and choose a step.

import { ApiError, getJson } from "./api.ts";
import { onBack, watch } from "./connection.ts";
import { button, h, setText } from "./dom.ts";
import { PanelView } from "./panel.ts";
import { firstFrom, Past, type Report, type Step } from "./report.ts";
import { onTheme } from "./settings.ts";
import { draw, GUTTER, type Palette } from "./timeline.ts";

const POLL_EVERY_MS = 250;
const FRAME_MS = 1000 / 30;
/** The chart is drawn this late, so that reports arrive before their time scrolls into view. */
const DELAY_US = 400_000;
/** Shorter windows do not scroll: they show the newest steps, as an oscilloscope does. */
const SCROLL_FROM_US = 1_000_000;

/** A part of the server's time, in microseconds. */
interface Range {
  from: number;
  to: number;
}

/** Builds the panel. The result tells it whether it can be seen. */
export function start(panel: HTMLElement): (open: boolean) => void {
  const lanes = new Lanes();
  panel.append(lanes.view.element);
  return (open) => lanes.show(open);
}

class Lanes {
  readonly view = new PanelView((us) => this.#zoom(us));
  readonly #past = new Past();
  #open = false;
  #abort: AbortController | null = null; // of the polling
  #since: number | null = null; // the server's time of the last report
  #clock = 0; // microseconds of the server's clock when performance.now() was 0
  #span = 5_000_000; // microseconds that the chart shows
  #held: Range | null = null; // while the chart stands still
  #paused = false;
  #selected: Step | null = null;
  #palette: Palette | null = null;
  #frame = 0; // the drawing that is due with the next frame
  #timer = 0; // of the drawing after it, while the chart moves

  constructor() {
    const { canvas, pause } = this.view;
    canvas.addEventListener("pointermove", (event) => this.#point(event));
    canvas.addEventListener("pointerdown", (event) => {
      this.#point(event);
      this.#pause(event.pointerType === "mouse" ? !this.#paused : true);
    });
    canvas.addEventListener("pointerleave", (event) => {
      if (this.#paused || event.pointerType !== "mouse") return;
      this.#held = null;
      this.#select(null);
    });
    canvas.addEventListener("keydown", (event) => {
      if (this.#press(event.key)) event.preventDefault();
    });
    pause.addEventListener("click", () => {
      this.#pause(!this.#paused);
      if (!this.#paused) this.#select(null);
    });
    new ResizeObserver(() => this.#redraw()).observe(canvas);
    onTheme(() => {
      this.#palette = null;
      this.#redraw();
    });
    onBack(() => this.#follow());
    document.addEventListener("visibilitychange", () => this.#follow());
  }

  show(open: boolean): void {
    this.#open = open;
    this.#follow();
    this.#redraw();
  }

  // Asking

  /** Starts or stops the polling, as the panel can be seen or not. */
  #follow(): void {
    const seen = this.#open && document.visibilityState === "visible";
    if (seen && !this.#abort) void this.#poll((this.#abort = new AbortController()));
    if (!seen) {
      this.#abort?.abort();
      this.#abort = null;
    }
  }

  async #poll(own: AbortController): Promise<void> {
    this.view.failure.hidden = true;
    try {
      while (!own.signal.aborted) {
        const began = performance.now();
        this.#take(await getJson<Report>(this.#since === null ? "lanes" : `lanes?since=${this.#since}`, own.signal));
        const rest = POLL_EVERY_MS - (performance.now() - began);
        await new Promise((resolve) => setTimeout(resolve, Math.max(50, rest)));
      }
    } catch (error) {
      if (own.signal.aborted || this.#abort !== own) return;
      this.#abort = null;
      if (!(error instanceof ApiError)) return; // the server is gone: the banner says so
      if (error.status === 503) watch("loading", error.message);
      else this.#fail(error.message);
    }
  }

  #fail(message: string): void {
    this.view.failure.replaceChildren(h("span", {}, message), button("Try again", () => this.#follow()));
    this.view.failure.hidden = false;
  }

  #take(report: Report): void {
    if (this.#since !== null && report.now_us < this.#since) this.#past.clear(); // a new server, with a new clock
    const measured = report.now_us - performance.now() * 1000;
    const error = measured - this.#clock;
    // The clocks differ by the time of the answer on its way, which varies: follow it slowly.
    this.#clock = Math.abs(error) > 100_000 ? measured : this.#clock + error / 10;
    this.#since = report.now_us;
    this.#past.add(report);
    this.view.update(report, this.#past);
    this.#redraw();
  }

  // Drawing

  #redraw(): void {
    if (this.#frame || !this.#open) return;
    this.#frame = requestAnimationFrame(() => {
      this.#frame = 0;
      this.#draw();
    });
  }

  #draw(): void {
    const { from, to } = this.#range();
    this.#palette ??= this.view.palette();
    draw(this.view.canvas, { past: this.#past, from, to, selected: this.#selected }, this.#palette);
    const { steps } = this.#past;
    const moves = !this.#held && this.#span >= SCROLL_FROM_US && firstFrom(steps, from, (step) => step.received) < steps.length;
    if (!moves) return;
    // A timer rather than the next frame: the browser makes no frames in between.
    const column = this.#span / 1000 / Math.max(1, this.view.canvas.clientWidth * devicePixelRatio);
    clearTimeout(this.#timer);
    this.#timer = setTimeout(() => this.#redraw(), Math.max(FRAME_MS, column));
  }

  #range(): Range {
    if (this.#held) return this.#held;
    const now = this.#clock + performance.now() * 1000;
    const newest = this.#past.steps[this.#past.steps.length - 1]?.received ?? now;
    const to = this.#span < SCROLL_FROM_US ? newest + this.#span / 20 : now - DELAY_US;
    return { from: to - this.#span, to };
  }

  // The reader's hands

  #select(step: Step | null): void {
    this.#selected = step;
    this.view.showStep(step);
    this.#redraw();
  }

  #pause(value: boolean): void {
    this.#paused = value;
    this.#held = value ? this.#range() : null;
    setText(this.view.pause, value ? "Resume" : "Pause");
    this.#redraw();
  }

  /** The chart stands still under the pointer. */
  #point(event: PointerEvent): void {
    this.#held ??= this.#range();
    const box = this.view.canvas.getBoundingClientRect();
    const share = (event.clientX - box.left - GUTTER) / (box.width - GUTTER);
    this.#select(stepAt(this.#past.steps, this.#held.from + share * this.#span, this.#held));
  }

  /** Returns whether the key does something here. */
  #press(key: string): boolean {
    if (key === " ") this.#pause(!this.#paused);
    else if (!["ArrowLeft", "ArrowRight", "Home", "End"].includes(key)) return false;
    else {
      this.#pause(true);
      const { steps } = this.#past;
      const { from, to } = this.#range();
      const first = firstFrom(steps, from, (step) => step.received);
      const after = firstFrom(steps, to, (step) => step.received);
      const at = this.#selected ? steps.indexOf(this.#selected) : after;
      const next = { ArrowLeft: at - 1, ArrowRight: at + 1, Home: first, End: after - 1 }[key] ?? at;
      this.#select(steps[Math.max(first, Math.min(after - 1, next))] ?? null);
    }
    return true;
  }

  /** Shows another span. A chart that stands still zooms around the selected step. */
  #zoom(us: number): void {
    this.#span = us;
    if (this.#held) {
      const to = this.#selected ? Math.min(this.#selected.began + us / 2, this.#held.to) : this.#held.to;
      this.#held = { from: to - us, to };
    }
    this.#redraw();
  }
}

/** The step that ran at a time, or the nearest one in the window. */
function stepAt(steps: Step[], time: number, { from, to }: Range): Step | null {
  const after = firstFrom(steps, time, (step) => step.sampled);
  const distance = (step: Step): number => Math.max(step.began - time, time - step.sampled, 0);
  const near = steps.slice(Math.max(0, after - 1), after + 1).filter((step) => step.sampled >= from && step.began <= to);
  return near.sort((a, b) => distance(a) - distance(b))[0] ?? null;
}
