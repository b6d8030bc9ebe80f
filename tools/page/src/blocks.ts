//! Splits Markdown into blocks. It follows CommonMark and GFM where models write them; there are no
//! indented code blocks, no underlined headings and no HTML.
//!
//! **Invariant:** more text never changes a block before the last one, once the first line of the
//! next block is complete (of a table: its second line). Streaming rests on this.

export interface Item {
  blocks: Block[];
  task: boolean | null; // whether it is done, if it is a task
}
export type Align = "left" | "center" | "right" | null;
type Content =
  | { type: "heading"; level: number; text: string }
  | { type: "paragraph"; text: string }
  | { type: "code"; language: string; text: string }
  | { type: "quote"; blocks: Block[] }
  | { type: "list"; start: number | null; loose: boolean; items: Item[] } // start: of a numbered list
  | { type: "table"; align: Align[]; head: string[]; rows: string[][] }
  | { type: "rule" };
/** A block, and the number of its first line. */
export type Block = Content & { line: number };

/** Quotes and lists deeper than this are plain text. */
const DEPTH_MAX = 8;
const FENCE = /^ {0,3}(`{3,}(?=[^`]*$)|~{3,})\s*(\S*)/;
const HEADING = /^ {0,3}(#{1,6})(?:[ \t]+(.*))?$/;
const RULE = /^ {0,3}(?:(?:-[ \t]*){3,}|(?:\*[ \t]*){3,}|(?:_[ \t]*){3,})$/;
const QUOTE = /^ {0,3}> ?/;
const MARKER = /^( *)([-*+]|\d{1,9}[.)])( +|$)(.*)$/;
const DELIMITER_ROW = /^\|?\s*:?-+:?\s*(?:\|\s*:?-+:?\s*)*\|?$/; // of a trimmed line

/** The blocks of these lines. */
export function parse(lines: string[], depth = 0): Block[] {
  const blocks: Block[] = [];
  let at = 0;
  while (at < lines.length) {
    const line = spaced(lines[at]!);
    if (!line.trim()) {
      at += 1;
      continue;
    }
    const [content, next] = block(lines, at, line, depth);
    blocks.push({ ...content, line: at });
    at = next;
  }
  return blocks;
}

/** The block that begins in this line, and the line after it. */
function block(lines: string[], at: number, line: string, depth: number): [Content, number] {
  const fence = FENCE.exec(line);
  if (fence) return code(lines, at, fence);
  const heading = HEADING.exec(line);
  if (heading) return [{ type: "heading", level: heading[1]!.length, text: headingText(heading[2] ?? "") }, at + 1];
  if (RULE.test(line)) return [{ type: "rule" }, at + 1];
  if (depth < DEPTH_MAX && QUOTE.test(line)) return quote(lines, at, depth);
  if (depth < DEPTH_MAX && MARKER.test(line)) return list(lines, at, depth);
  if (beginsTable(lines, at)) return table(lines, at);
  return paragraph(lines, at);
}

function code(lines: string[], at: number, fence: RegExpExecArray): [Content, number] {
  const mark = fence[1]!;
  const indent = new RegExp(`^ {0,${fence[0].search(/\S/)}}`);
  let end = at + 1;
  while (end < lines.length && !closesFence(lines[end]!, mark)) end += 1;
  const inside = lines.slice(at + 1, end).map((line) => line.replace(indent, ""));
  return [{ type: "code", language: fence[2]!, text: inside.join("\n") }, end + 1];
}

/** Whether a line has at least as many of the fence's marks, and nothing else. */
function closesFence(line: string, mark: string): boolean {
  const text = line.trim();
  return text.length >= mark.length && text === mark[0]!.repeat(text.length);
}

/** The text of a heading without the marks that may stand at its end. */
function headingText(text: string): string {
  return text.trim().replace(/(?:^|\s)#+$/, "").trimEnd();
}

function quote(lines: string[], at: number, depth: number): [Content, number] {
  const inside: string[] = [];
  let end = at;
  for (; end < lines.length; end += 1) {
    const line = spaced(lines[end]!);
    if (QUOTE.test(line)) inside.push(line.replace(QUOTE, ""));
    else if (continuesParagraph(lines, end, inside[inside.length - 1] ?? "")) inside.push(line);
    else break;
  }
  return [{ type: "quote", blocks: parse(inside, depth + 1) }, end];
}

function list(lines: string[], at: number, depth: number): [Content, number] {
  const first = MARKER.exec(spaced(lines[at]!))!;
  const outer = first[1]!.length;
  const items: string[][] = [];
  let inner = 0; // columns before the text of the current item
  let loose = false;
  let fence = ""; // the fence that is open in the current item
  let end = at;
  for (; end < lines.length; end += 1) {
    const line = spaced(lines[end]!);
    const item = items[items.length - 1];
    const indent = line.search(/\S/);
    const marker = MARKER.exec(line);
    const blank = item !== undefined && item.length > 0 && item[item.length - 1] === "";
    // Models indent nested lists by two columns, also below a number.
    const belongs = item !== undefined && (indent >= inner || (marker !== null && indent >= outer + 2));
    if (indent < 0) {
      item?.push("");
    } else if (belongs) {
      const text = (item.length ? lines[end]! : line).replace(/^\t+/, (tabs) => "    ".repeat(tabs.length));
      const inside = text.slice(Math.min(inner, indent));
      fence = nextFence(fence, inside);
      item.push(inside);
    } else if (marker && !RULE.test(line) && sameKind(first[2]!, marker[2]!)) {
      loose ||= blank;
      inner = indent + marker[2]!.length + (marker[3]!.length > 4 ? 1 : Math.max(1, marker[3]!.length));
      items.push([marker[4]!]);
      fence = nextFence("", marker[4]!);
    } else if (item && !fence && !blank && continuesParagraph(lines, end, item[item.length - 1] ?? "")) {
      item.push(line.trimStart());
    } else {
      break;
    }
  }
  const parsed = items.map((item) => readItem(item, depth));
  loose ||= parsed.some(({ blocks }) => blocks.some((b, i) => b.type === "paragraph" && blocks[i - 1]?.type === "paragraph"));
  const start = /\d/.test(first[2]!) ? parseInt(first[2]!, 10) : null;
  return [{ type: "list", start, loose, items: parsed }, end];
}

function readItem(lines: string[], depth: number): Item {
  const task = /^\[([ xX])\]\s+/.exec(lines[0] ?? "");
  if (task) lines[0] = lines[0]!.slice(task[0].length);
  return { blocks: parse(lines, depth + 1), task: task ? task[1] !== " " : null };
}

function sameKind(a: string, b: string): boolean {
  return a[a.length - 1] === b[b.length - 1];
}

/** The fence that is open after this line. */
function nextFence(open: string, line: string): string {
  const fence = FENCE.exec(line)?.[1] ?? "";
  if (!open) return fence;
  return closesFence(line, open) ? "" : open;
}

function beginsTable(lines: string[], at: number): boolean {
  const [head, row] = [lines[at]!, lines[at + 1]];
  if (row === undefined || !head.includes("|") || !DELIMITER_ROW.test(row.trim())) return false;
  return cells(head).length === cells(row).length;
}

function table(lines: string[], at: number): [Content, number] {
  const head = cells(lines[at]!);
  const align = cells(lines[at + 1]!).map((cell): Align => {
    const [left, right] = [cell.startsWith(":"), cell.endsWith(":")];
    return left && right ? "center" : right ? "right" : left ? "left" : null;
  });
  const rows: string[][] = [];
  let end = at + 2;
  for (; end < lines.length; end += 1) {
    const line = spaced(lines[end]!);
    if (!line.trim() || beginsBlock(line)) break;
    const row = cells(line);
    rows.push(head.map((_, column) => row[column] ?? ""));
  }
  return [{ type: "table", align, head, rows }, end];
}

/** The cells of a row. A bar after a backslash is part of a cell. */
function cells(line: string): string[] {
  const inside = line.trim().replace(/^\|/, "").replace(/(^|[^\\])\|$/, "$1");
  const found: string[] = [];
  let cell = "";
  for (let at = 0; at < inside.length; at += 1) {
    if (inside[at] === "\\" && inside[at + 1] === "|") {
      cell += "|";
      at += 1;
    } else if (inside[at] === "|") {
      found.push(cell.trim());
      cell = "";
    } else {
      cell += inside[at];
    }
  }
  return [...found, cell.trim()];
}

function paragraph(lines: string[], at: number): [Content, number] {
  const text = [lines[at]!.trimStart()];
  let end = at + 1;
  while (end < lines.length && continuesParagraph(lines, end, text[0]!)) {
    text.push(lines[end]!.trimStart());
    end += 1;
  }
  return [{ type: "paragraph", text: text.join("\n").trimEnd() }, end];
}

/** Whether a line goes on with the paragraph of the line before it. */
function continuesParagraph(lines: string[], at: number, before: string): boolean {
  const line = spaced(lines[at]!);
  if (!before.trim() || !line.trim() || FENCE.test(before) || HEADING.test(before)) return false;
  return !beginsBlock(line) && !beginsTable(lines, at);
}

/** Whether a line ends a paragraph. Of numbered lists, only one that begins with 1 does. */
function beginsBlock(line: string): boolean {
  if (FENCE.test(line) || HEADING.test(line) || RULE.test(line) || QUOTE.test(line)) return true;
  const marker = MARKER.exec(line);
  return marker !== null && marker[4] !== "" && (!/\d/.test(marker[2]!) || parseInt(marker[2]!, 10) === 1);
}

/** The line with spaces for the tabs at its beginning. */
function spaced(line: string): string {
  return line.replace(/^[ \t]+/, (space) => space.replaceAll("\t", "    "));
}
