//! Makes and finds elements. Text reaches the document only as text: nothing here parses HTML.

type Attribute = string | number | boolean | ((event: Event) => void);
export type Child = Node | string | null;

/** An element. A function is a listener; `true` and `false` set and leave out an attribute. */
export function h<K extends keyof HTMLElementTagNameMap>(
  tag: K,
  attributes: Record<string, Attribute> = {},
  ...children: Child[]
): HTMLElementTagNameMap[K] {
  const element = document.createElement(tag);
  fill(element, attributes, children);
  return element;
}

/** An element of SVG. */
export function svg<K extends keyof SVGElementTagNameMap>(
  tag: K,
  attributes: Record<string, Attribute> = {},
  ...children: Child[]
): SVGElementTagNameMap[K] {
  const element = document.createElementNS("http://www.w3.org/2000/svg", tag);
  fill(element, attributes, children);
  return element;
}

function fill(element: Element, attributes: Record<string, Attribute>, children: Child[]): void {
  for (const [name, value] of Object.entries(attributes)) {
    if (typeof value === "function") element.addEventListener(name, value);
    else if (value === true) element.setAttribute(name, "");
    else if (value !== false) element.setAttribute(name, String(value));
  }
  element.append(...children.filter((child) => child !== null));
}

/** A button with a text. */
export function button(text: string, click: () => void, attributes: Record<string, Attribute> = {}): HTMLButtonElement {
  return h("button", { type: "button", click, ...attributes }, text);
}

/** The element of index.html with this id. */
export function byId<T extends HTMLElement = HTMLElement>(id: string): T {
  const element = document.getElementById(id);
  if (!element) throw new Error(`index.html has no element ${id}`);
  return element as T;
}

/** Sets a text, and leaves the document alone when it has it already. */
export function setText(element: Element, text: string): void {
  if (element.textContent !== text) element.textContent = text;
}

/** Tells readers of the screen that something has happened. */
export function announce(text: string): void {
  byId("announce").textContent = text;
}

/** Copies a text, and says so on the button for a moment. */
export async function copy(text: string, from: HTMLButtonElement): Promise<void> {
  const label = from.dataset["label"] ?? from.textContent ?? "";
  from.dataset["label"] = label;
  try {
    await navigator.clipboard.writeText(text);
    from.textContent = "Copied";
    announce("Copied");
  } catch {
    // Without TLS, a browser has no clipboard except on localhost.
    from.textContent = "Not allowed";
    announce("The browser does not allow copying here");
  }
  setTimeout(() => (from.textContent = label), 1500);
}

/** The text with a capital letter and a full stop. */
export function sentence(text: string): string {
  const first = text.charAt(0).toUpperCase() + text.slice(1);
  return /[.!?]$/.test(first) ? first : `${first}.`;
}

/** A number of milliseconds, with three digits that matter. */
export function milliseconds(ms: number): string {
  if (ms >= 10_000) return `${(ms / 1000).toFixed(1)} s`;
  return `${significant(ms)} ms`;
}

/** A number with about three digits that matter. */
export function significant(value: number): string {
  const digits = value >= 100 ? 0 : value >= 10 ? 1 : 2;
  return whole(Number(value.toFixed(digits)));
}

/** A number with a comma between thousands. */
export function whole(value: number): string {
  return value.toLocaleString("en", { maximumFractionDigits: 2 });
}
