//! Turns the text of one Markdown block into DOM nodes: emphasis, code, links, hard breaks.
//!
//! The time is linear in the text, whatever the text is: a model's answer is hostile input.
//! HTML is shown as text. An image becomes a link, so that an answer cannot make the browser fetch.

import { h } from "./dom.ts";

interface Run {
  mark: string; // one of * _ ~
  count: number;
  opens: boolean;
  closes: boolean;
}
interface Bracket {
  bracket: "[" | "![";
  active: boolean;
}
type Part = Node | Run | Bracket;

/** Characters in which the target of a link must end. */
const TARGET_MAX = 2048;
/** Runs of emphasis that are open at once. More would make the document too deep to lay out. */
const OPEN_MAX = 24;
const ENTITIES: Record<string, string> = { amp: "&", lt: "<", gt: ">", quot: '"', apos: "'", nbsp: "\u00a0" };

/** The nodes of a text. */
export function inline(text: string): Node[] {
  const parts: Part[] = [];
  const brackets: number[] = [];
  const unclosed = new Set<number>(); // lengths of backtick runs that nothing closes from here on
  let plain = "";
  let at = 0;

  const push = (...more: Part[]): void => {
    if (plain) parts.push(document.createTextNode(plain));
    plain = "";
    parts.push(...more);
  };

  while (at < text.length) {
    const c = text[at]!;
    if (c === "\\" && /[!-/:-@[-`{-~]/.test(text[at + 1] ?? "")) {
      plain += text[at + 1];
      at += 2;
    } else if (c === "\\" && text[at + 1] === "\n") {
      push(h("br"));
      at += 2;
    } else if (c === "\n") {
      if (plain.endsWith("  ")) {
        plain = plain.trimEnd();
        push(h("br"));
      } else {
        plain += "\n";
      }
      at += 1;
    } else if (c === "`") {
      const run = match(/`+/y, text, at)!;
      const end = unclosed.has(run.length) ? -1 : closingTicks(text, at + run.length, run.length);
      if (end < 0) {
        unclosed.add(run.length);
        plain += run;
        at += run.length;
      } else {
        push(h("code", {}, codeText(text.slice(at + run.length, end))));
        at = end + run.length;
      }
    } else if (c === "*" || c === "_" || c === "~") {
      const run = match(/\*+|_+|~+/y, text, at)!;
      const found = delimiters(run, text[at - 1] ?? " ", text[at + run.length] ?? " ");
      if (found) push(found);
      else plain += run;
      at += run.length;
    } else if (c === "[" || (c === "!" && text[at + 1] === "[")) {
      const bracket = c === "[" ? "[" : "![";
      push({ bracket, active: true });
      brackets.push(parts.length - 1);
      at += bracket.length;
    } else if (c === "]") {
      const opener = brackets.pop();
      const start = opener === undefined ? null : (parts[opener] as Bracket);
      const target = start?.active && text[at + 1] === "(" ? linkTarget(text, at + 2) : null;
      if (opener === undefined || !start || !target) {
        plain += "]";
        at += 1;
        continue;
      }
      push();
      const label = emphasis(parts.splice(opener + 1));
      parts.pop();
      parts.push(start.bracket === "[" ? link(target.url, label) : imageLink(target.url, label));
      // A link holds no other link.
      if (start.bracket === "[") for (const outer of brackets) (parts[outer] as Bracket).active = false;
      at = target.end;
    } else if (c === "<") {
      const found = match(/<((?:https?:\/\/|mailto:)[^\s<>]{1,2048})>/y, text, at);
      const url = found && safeUrl(found.slice(1, -1));
      if (found && url) push(link(url, [document.createTextNode(found.slice(1, -1))]));
      else plain += found ?? c;
      at += (found ?? c).length;
    } else if (c === "h" && !/[\p{L}\p{N}]/u.test(text[at - 1] ?? " ")) {
      const found = match(/https?:\/\/[^\s<>"`]{1,2048}/y, text, at);
      const shown = found && withoutTail(found);
      const url = shown && safeUrl(shown);
      if (shown && url) push(link(url, [document.createTextNode(shown)]));
      else plain += c;
      at += shown && url ? shown.length : 1;
    } else if (c === "&") {
      const found = match(/&(?:amp|lt|gt|quot|apos|nbsp|#\d{1,7}|#[xX][\da-fA-F]{1,6});/y, text, at);
      plain += found ? entity(found.slice(1, -1)) : c;
      at += (found ?? c).length;
    } else {
      const found = match(/[^\\\n`*_~[\]!<h&]+/y, text, at) ?? c;
      plain += found;
      at += found.length;
    }
  }
  push();
  return emphasis(parts);
}

/** Pairs the runs of `*`, `_` and `~~`; what has no partner becomes text. */
function emphasis(parts: Part[]): Node[] {
  const stack: (Node | Run)[] = [];
  const openers: Record<string, number> = { "*": 0, "_": 0, "~": 0 };

  const text = (part: Node | Run): Node => {
    if (part instanceof Node) return part;
    if (part.opens) openers[part.mark]! -= 1;
    return document.createTextNode(part.mark.repeat(part.count));
  };

  for (const part of parts) {
    if (part instanceof Node) {
      stack.push(part);
      continue;
    }
    if ("bracket" in part) {
      stack.push(document.createTextNode(part.bracket));
      continue;
    }
    const closer = { ...part };
    while (closer.closes && closer.count > 0 && openers[closer.mark]! > 0) {
      let at = stack.length - 1;
      while (!isOpener(stack[at]!, closer.mark)) at -= 1;
      const opener = stack[at] as Run;
      const used = closer.mark === "~" || (opener.count >= 2 && closer.count >= 2) ? 2 : 1;
      const inner = stack.splice(at + 1).map(text);
      opener.count -= used;
      closer.count -= used;
      if (opener.count === 0) {
        stack.pop();
        openers[closer.mark]! -= 1;
      }
      stack.push(h(closer.mark === "~" ? "del" : used === 2 ? "strong" : "em", {}, ...inner));
    }
    if (closer.count === 0) continue;
    closer.opens &&= openers["*"]! + openers["_"]! + openers["~"]! < OPEN_MAX;
    if (closer.opens) openers[closer.mark]! += 1;
    stack.push(closer);
  }
  return stack.map(text);
}

function isOpener(part: Node | Run, mark: string): boolean {
  return !(part instanceof Node) && part.mark === mark && part.opens;
}

/** The rules of CommonMark on which runs may open and close emphasis. */
function delimiters(run: string, before: string, after: string): Run | null {
  const mark = run[0]!;
  if (run.length > 3 || (mark === "~" && run.length !== 2)) return null;
  const [spaceBefore, spaceAfter] = [/\s/.test(before), /\s/.test(after)];
  const [signBefore, signAfter] = [/[\p{P}\p{S}]/u.test(before), /[\p{P}\p{S}]/u.test(after)];
  const left = !spaceAfter && (!signAfter || spaceBefore || signBefore);
  const right = !spaceBefore && (!signBefore || spaceAfter || signAfter);
  const opens = left && (mark !== "_" || !right || signBefore);
  const closes = right && (mark !== "_" || !left || signAfter);
  return opens || closes ? { mark, count: run.length, opens, closes } : null;
}

function closingTicks(text: string, from: number, length: number): number {
  const runs = /`+/g;
  runs.lastIndex = from;
  for (let found = runs.exec(text); found; found = runs.exec(text)) {
    if (found[0].length === length) return found.index;
  }
  return -1;
}

function codeText(text: string): string {
  const line = text.replaceAll("\n", " ");
  return /^ .*[^ ].* $/.test(line) ? line.slice(1, -1) : line;
}

/** Reads `target "title")` after the opening parenthesis. */
function linkTarget(text: string, from: number): { url: string; end: number } | null {
  const rest = text.slice(from, from + TARGET_MAX);
  const quoted = /^\s*<([^<>\n]*)>(?:\s+(?:"[^"]*"|'[^']*'))?\s*\)/.exec(rest);
  if (quoted) {
    const url = safeUrl(quoted[1]!);
    return url === null ? null : { url, end: from + quoted[0].length };
  }
  const lead = /^\s*/.exec(rest)![0].length;
  let at = lead;
  for (let depth = 0; at < rest.length && !/\s/.test(rest[at]!); at += 1) {
    if (rest[at] === "(") depth += 1;
    else if (rest[at] === ")" && depth-- === 0) break;
  }
  const close = /^(?:\s+(?:"[^"]*"|'[^']*'))?\s*\)/.exec(rest.slice(at));
  const url = close && safeUrl(rest.slice(lead, at));
  return close && url ? { url, end: from + at + close[0].length } : null;
}

/** The URL, if a click on it can only open a web page or a letter. */
function safeUrl(text: string): string | null {
  try {
    const url = new URL(text);
    return ["http:", "https:", "mailto:"].includes(url.protocol) ? url.href : null;
  } catch {
    return null;
  }
}

function link(url: string, label: Node[]): HTMLElement {
  return h("a", { href: url, target: "_blank", rel: "noopener noreferrer" }, ...label);
}

function imageLink(url: string, label: Node[]): HTMLElement {
  const text = label.map((node) => node.textContent ?? "").join("");
  return link(url, [document.createTextNode(`Image: ${text || url}`)]);
}

/** A bare URL without the punctuation of the sentence around it. */
function withoutTail(url: string): string {
  let end = url.length;
  let unopened = url.split(")").length - url.split("(").length;
  while (/[.,:;!?'*_~\])]/.test(url[end - 1] ?? "")) {
    if (url[end - 1] === ")" && unopened-- <= 0) break;
    end -= 1;
  }
  return url.slice(0, end);
}

function entity(name: string): string {
  const known = ENTITIES[name];
  if (known) return known;
  const code = /^#[xX]/.test(name) ? parseInt(name.slice(2), 16) : parseInt(name.slice(1), 10);
  return code > 0 && code <= 0x10ffff ? String.fromCodePoint(code) : "\ufffd";
}

function match(pattern: RegExp, text: string, at: number): string | null {
  pattern.lastIndex = at;
  return pattern.exec(text)?.[0] ?? null;
}
