//! Latency histograms: counts of the last minute or since the server's start, with p50 and p99.

import { h, milliseconds, setText, svg, whole } from "./dom.ts";
import type { Histogram } from "./report.ts";

/** How far back "the last minute" looks, and how often a state is kept for it. */
const [SPAN_MS, KEEP_EVERY_MS] = [60_000, 2_000];
const [WIDTH, HEIGHT] = [240, 44];

/** A quantile as Prometheus' `histogram_quantile` computes it: linear inside a bucket. */
export function quantile(bounds: number[], counts: number[], q: number): number | null {
  const total = counts.reduce((sum, count) => sum + count, 0);
  if (total === 0) return null;
  const rank = q * total;
  let below = 0;
  for (const [bucket, bound] of bounds.entries()) {
    const count = counts[bucket] ?? 0;
    if (count > 0 && below + count >= rank) {
      const lower = bucket === 0 ? 0 : bounds[bucket - 1]!;
      return lower + ((bound - lower) * (rank - below)) / count;
    }
    below += count;
  }
  return bounds[bounds.length - 1] ?? null; // above all bounds
}

/** One histogram with its title and figures. */
export class HistogramView {
  readonly element: HTMLElement;
  readonly #title: string;
  readonly #figures = h("span", { class: "mono figures" });
  readonly #bars = svg("svg", { viewBox: `0 0 ${WIDTH} ${HEIGHT}`, preserveAspectRatio: "none", role: "img", class: "bars" });
  readonly #range = [h("span"), h("span")] as const;
  #states: { at: number; counts: number[] }[] = [];
  #drawn = "";

  constructor(title: string, meaning: string) {
    this.#title = title;
    const range = h("div", { class: "range mono" }, ...this.#range);
    this.element = h("section", { class: "histogram" }, h("h3", { title: meaning }, title), this.#figures, this.#bars, range);
  }

  /** Takes a new state of the counts, and draws it when it differs. */
  update({ bounds = [], counts = [] }: Histogram, recent: boolean): void {
    const now = performance.now();
    const newest = this.#states[this.#states.length - 1];
    // Counts that shrink are those of a new server.
    if (newest && counts.some((count, i) => count < (newest.counts[i] ?? 0))) this.#states = [];
    if (!newest || now - newest.at >= KEEP_EVERY_MS) this.#states.push({ at: now, counts });
    while ((this.#states[1]?.at ?? now) < now - SPAN_MS) this.#states.shift();
    const before = this.#states[0]?.counts ?? [];
    const shown = recent ? counts.map((count, i) => count - (before[i] ?? 0)) : counts;
    const key = shown.join();
    if (key !== this.#drawn) this.#draw(bounds, shown);
    this.#drawn = key;
  }

  #draw(bounds: number[], counts: number[]): void {
    const total = counts.reduce((sum, count) => sum + count, 0);
    const [p50, p99] = [quantile(bounds, counts, 0.5), quantile(bounds, counts, 0.99)];
    const name = (us: number | null): string => (us === null ? "–" : milliseconds(us / 1000));
    // Nothing is known about the values below the first bound.
    const least = bounds[0] ?? 0;
    const shownQuantile = (us: number | null): string => (us !== null && us < least ? `< ${name(least)}` : name(us));
    const figures = `p50 ${shownQuantile(p50)} · p99 ${shownQuantile(p99)}`;
    setText(this.#figures, total ? figures : "no values");
    this.#bars.setAttribute("aria-label", `${this.#title}: ${whole(total)} values, ${figures}`);

    // Only the part with values is drawn, but enough buckets to see a shape.
    let first = Math.max(0, counts.findIndex((count) => count > 0));
    let last = Math.max(first, counts.findLastIndex((count) => count > 0));
    while (last - first < 11 && (first > 0 || last < counts.length - 1)) {
      first = Math.max(0, first - 1);
      if (last - first < 11) last = Math.min(counts.length - 1, last + 1);
    }
    const shown = counts.slice(first, last + 1);
    const most = Math.max(1, ...shown);
    const step = WIDTH / Math.max(1, shown.length);
    this.#bars.replaceChildren(...shown.map((count, i) => {
      const height = count ? Math.max(2, (count / most) * HEIGHT) : 1;
      const upper = bounds[first + i];
      const range = upper === undefined ? `above ${name(bounds[bounds.length - 1] ?? null)}` : `up to ${name(upper)}`;
      const bar = { x: i * step, y: HEIGHT - height, width: step - 2, height, class: count ? "bar" : "bar none" };
      return svg("rect", bar, svg("title", {}, `${range}: ${whole(count)}`));
    }));
    setText(this.#range[0], total ? name(first === 0 ? 0 : bounds[first - 1]!) : "");
    setText(this.#range[1], total ? (bounds[last] === undefined ? "more" : name(bounds[last]!)) : "");
  }
}
