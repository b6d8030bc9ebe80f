//! The slots and the cells of the KV cache, as bars.

import { h, setText, whole } from "./dom.ts";
import type { Report, Slot } from "./report.ts";

/** Slots that are shown one by one. */
const SLOTS_MAX = 64;

interface Row {
  element: HTMLElement;
  update: (slot: Slot, scale: number) => void;
}

export class SlotsView {
  readonly element: HTMLElement;
  readonly #body = h("tbody");
  readonly #scale = h("span", { class: "mono quiet" });
  readonly #more = h("p", { class: "quiet", hidden: true });
  #rows: Row[] = [];

  constructor() {
    const head = h("tr", {}, ...["Slot", "State", "Position", "Tokens"].map((name) => h("th", { scope: "col" }, name)));
    const legend = h("p", { class: "legend" },
      key("cached", "from the cache, or kept for it"), key("prompt", "prompt"), key("generated", "generated"), key("ahead", "prompt still to compute"));
    const table = h("table", { class: "slots" }, h("thead", {}, head), this.#body);
    const title = h("div", { class: "title" }, h("h3", {}, "Slots"), this.#scale);
    this.element = h("section", {}, title, table, this.#more, legend);
  }

  update(slots: Slot[]): void {
    const shown = slots.slice(0, SLOTS_MAX);
    while (this.#rows.length < shown.length) this.#rows.push(slotRow());
    this.#rows.length = shown.length;
    // All bars share one scale, a power of two, so that they can be compared and seldom jump.
    const longest = Math.max(64, ...slots.map((slot) => Math.max(slot.tokens, slot.prompt_tokens)));
    const scale = 2 ** Math.ceil(Math.log2(longest));
    for (const [i, slot] of shown.entries()) this.#rows[i]!.update(slot, scale);
    if (this.#body.childElementCount !== shown.length) this.#body.replaceChildren(...this.#rows.map((row) => row.element));
    setText(this.#scale, `full bar: ${whole(scale)} tokens`);
    this.#more.hidden = slots.length <= SLOTS_MAX;
    setText(this.#more, `${slots.length - SLOTS_MAX} more slots are not shown.`);
  }
}

function slotRow(): Row {
  const name = h("td", { class: "mono" });
  const state = h("td", { class: "slot-state" });
  const parts = ["cached", "prompt", "generated", "ahead"].map((kind) => h("i", { "data-part": kind }));
  const track = h("span", { class: "track", "aria-hidden": "true" }, ...parts);
  const tokens = h("td", { class: "mono number" });
  const element = h("tr", {}, name, state, h("td", { class: "position" }, track), tokens);
  const update = (slot: Slot, scale: number): void => {
    // The tokens of an idle slot are those that it keeps for the next request.
    const idle = slot.state === "idle";
    const prompt = idle ? slot.tokens : Math.min(slot.tokens, slot.prompt_tokens);
    const cached = idle ? slot.tokens : Math.min(slot.cached_tokens, prompt);
    const generated = slot.tokens - prompt;
    const ahead = idle ? 0 : slot.prompt_tokens - prompt;
    setText(name, String(slot.id));
    setText(state, slot.state);
    element.dataset["state"] = slot.state;
    setText(tokens, slot.tokens ? whole(slot.tokens) : "–");
    tokens.title = `${cached} cached, ${prompt - cached} prompt, ${generated} generated`;
    const counts = [cached, prompt - cached, generated, ahead];
    for (const [i, part] of parts.entries()) part.style.width = `${(100 * counts[i]!) / scale}%`;
  };
  return { element, update };
}

export class KvView {
  readonly element: HTMLElement;
  readonly #figures = h("span", { class: "mono figures" });
  readonly #parts = ["used", "kept"].map((kind) => h("i", { "data-part": kind }));

  constructor() {
    const bar = h("span", { class: "track tall", "aria-hidden": "true" }, ...this.#parts);
    const legend = h("p", { class: "legend" }, key("used", "in use"), key("kept", "kept for reuse"), key("free", "free"));
    this.element = h("section", {}, h("div", { class: "title" }, h("h3", {}, "KV cache"), this.#figures), bar, legend);
  }

  update({ used, kept, capacity }: Report["kv"]): void {
    const inUse = used - kept;
    setText(this.#figures, `${whole(inUse)} in use · ${whole(kept)} kept · ${whole(capacity - used)} free`);
    for (const [i, count] of [inUse, kept].entries()) this.#parts[i]!.style.width = `${(100 * count) / Math.max(1, capacity)}%`;
  }
}

function key(part: string, name: string): HTMLElement {
  return h("span", { class: "key" }, h("i", { class: "swatch", "data-part": part }), name);
}
