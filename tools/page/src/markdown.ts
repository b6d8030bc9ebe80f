//! Shows Markdown while it streams. Finished blocks are written once and stay; only the blocks that
//! more text can still change are drawn again.

import { parse, type Block, type Item } from "./blocks.ts";
import { button, copy, h, setText } from "./dom.ts";
import { inline } from "./inline.ts";

/** A text that grows, in an element. */
export class Markdown {
  readonly #root: HTMLElement;
  #finished = 0; // characters of the text whose blocks are final
  #shown = 0; // characters of the text that are drawn
  #open: HTMLElement[] = []; // elements that are drawn again, at the end of the root

  constructor(root: HTMLElement) {
    this.#root = root;
  }

  /** Draws a text, which begins with the text before. `complete` says that no more comes. */
  show(text: string, complete: boolean): void {
    if (text.length < this.#shown) this.#clear();
    this.#shown = text.length;
    const lines = text.slice(this.#finished).split("\n");
    const whole = complete ? lines.length : lines.length - 1;
    const blocks = parse(lines.map((line) => line.replace(/\r$/, "")));
    const finished = blocks.findIndex((_, i) => decidedBy(blocks[i + 1]) >= whole);

    // An open code block keeps its element: it can be long, and its button can have the focus.
    const [first, old] = [blocks[0], this.#open[0]];
    const kept = first?.type === "code" && old?.matches(".code") ? old : null;
    if (kept && first?.type === "code") updateCode(kept, first.language, first.text);
    for (const element of this.#open) if (element !== kept) element.remove();
    const elements = blocks.map((block, i) => (i === 0 && kept ? kept : render(block)));
    this.#root.append(...elements.filter((element) => element !== kept));

    if (finished > 0) {
      const before = lines.slice(0, blocks[finished]!.line);
      this.#finished += before.reduce((sum, line) => sum + line.length + 1, 0);
    }
    this.#open = elements.slice(Math.max(0, finished));
  }

  #clear(): void {
    this.#root.replaceChildren();
    this.#finished = 0;
    this.#open = [];
  }
}

/** The line that makes it certain that a block begins here, and so that the one before has ended. */
function decidedBy(block: Block | undefined): number {
  if (!block) return Infinity;
  return block.type === "table" ? block.line + 1 : block.line;
}

function render(block: Block): HTMLElement {
  switch (block.type) {
    case "heading":
      // The page itself has the levels 1 and 2.
      return h(`h${Math.min(6, block.level + 2)}` as "h3", { "data-level": block.level }, ...inline(block.text));
    case "paragraph":
      return h("p", {}, ...inline(block.text));
    case "code":
      return code(block.language, block.text);
    case "quote":
      return h("blockquote", {}, ...block.blocks.map(render));
    case "list":
      return list(block.start, block.items, block.loose);
    case "table":
      return table(block);
    case "rule":
      return h("hr");
  }
}

function list(start: number | null, items: Item[], loose: boolean): HTMLElement {
  const rows = items.map((item) => {
    const nodes = item.blocks.flatMap((block): Node[] => {
      return block.type === "paragraph" && !loose ? inline(block.text) : [render(block)];
    });
    if (item.task === null) return h("li", {}, ...nodes);
    const name = item.task ? "done" : "to do";
    const box = h("input", { type: "checkbox", disabled: true, checked: item.task, "aria-label": name });
    return h("li", { class: "task" }, box, ...nodes);
  });
  return start === null ? h("ul", {}, ...rows) : h("ol", { start }, ...rows);
}

function table({ align, head, rows }: Extract<Block, { type: "table" }>): HTMLElement {
  const row = (tag: "th" | "td", cells: string[]): HTMLElement => {
    return h("tr", {}, ...cells.map((cell, i) => h(tag, align[i] ? { "data-align": align[i] } : {}, ...inline(cell))));
  };
  const body = h("tbody", {}, ...rows.map((cells) => row("td", cells)));
  // A wide table scrolls by itself, also with the keyboard.
  const scroll = { class: "table", tabindex: 0, role: "region", "aria-label": "Table" };
  return h("div", scroll, h("table", {}, h("thead", {}, row("th", head)), body));
}

function code(language: string, text: string): HTMLElement {
  const content = h("code", {}, document.createTextNode(text));
  const press = button("Copy", () => void copy(content.textContent ?? "", press), { class: "plain", "aria-label": "Copy code" });
  const bar = h("figcaption", {}, h("span", { class: "language" }, language || "text"), press);
  return h("figure", { class: "code" }, bar, h("pre", { tabindex: 0 }, content));
}

function updateCode(figure: HTMLElement, language: string, text: string): void {
  setText(figure.querySelector(".language")!, language || "text");
  const node = figure.querySelector("code")!.firstChild as Text;
  if (text.startsWith(node.data)) node.appendData(text.slice(node.data.length));
  else node.data = text;
}
