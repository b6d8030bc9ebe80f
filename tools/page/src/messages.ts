//! The elements of one message.

import { runningIn } from "./answers.ts";
import type { Conversation, Message, Numbers } from "./conversations.ts";
import { button, copy, h, milliseconds, setText, significant, whole } from "./dom.ts";
import { Markdown } from "./markdown.ts";

/** What the buttons of a message do. */
export interface Actions {
  edit: (index: number, text: string) => void;
  regenerate: () => void;
  resume: () => void;
}

export interface View {
  element: HTMLElement;
  /** Draws the message as it is now. */
  update: () => void;
}

export function userView(message: Message, index: number, actions: Actions): View {
  const text = h("div", { class: "text" }, message.content);
  const open = (): void => openEditor(element, message, (changed) => actions.edit(index, changed));
  const edit = button("Edit", open, { class: "plain edit" });
  const press = button("Copy", () => void copy(message.content, press), { class: "plain" });
  const buttons = h("div", { class: "actions" }, edit, press);
  const element = h("article", { class: "message user", "aria-label": "You" }, text, buttons);
  return { element, update: () => undefined };
}

/** A field in the place of the message. Enter asks again; Escape closes it. */
function openEditor(element: HTMLElement, message: Message, done: (text: string) => void): void {
  const before = [...element.childNodes];
  const close = (): void => {
    element.replaceChildren(...before);
    element.querySelector<HTMLElement>(".edit")?.focus();
  };
  const send = (): void => {
    if (field.value.trim()) done(field.value.trim());
  };
  const rows = Math.min(12, message.content.split("\n").length + 1);
  const field = h("textarea", { "aria-label": "Edit the message", rows });
  field.value = message.content;
  field.addEventListener("keydown", (event) => {
    if (event.key === "Escape") close();
    else if (event.key === "Enter" && !event.shiftKey && !event.isComposing) send();
    else return;
    event.preventDefault();
    event.stopPropagation();
  });
  const buttons = h("div", { class: "actions" }, button("Ask again", send, { class: "primary" }), button("Cancel", close));
  element.replaceChildren(field, buttons);
  field.focus();
}

export function answerView(conversation: Conversation, message: Message, last: boolean, actions: Actions): View {
  const thought = h("div", { class: "markdown" });
  const thinking = h("details", { class: "reasoning", hidden: true }, h("summary", {}, "Reasoning"), thought);
  const text = h("div", { class: "text markdown" });
  const state = h("p", { class: "state", hidden: true });
  const numbers = h("details", { class: "numbers mono", hidden: true });
  const press = button("Copy", () => void copy(message.content, press), { class: "plain" });
  const again = button("Regenerate", actions.regenerate, { class: "plain", hidden: !last });
  const more = button("Continue", actions.resume, { class: "plain" });
  const buttons = h("div", { class: "actions" }, press, again, more);
  const footer = h("footer", {}, buttons, numbers);
  const element = h("article", { class: "message answer", "aria-label": "Answer" }, thinking, text, state, footer);

  const [markdown, thoughts] = [new Markdown(text), new Markdown(thought)];
  const update = (): void => {
    const running = runningIn(conversation);
    const writing = running?.message === message;
    element.setAttribute("aria-busy", String(writing));
    element.classList.toggle("empty", !message.content);
    thinking.hidden = !message.reasoning;
    if (message.reasoning) thoughts.show(message.reasoning, !writing);
    markdown.show(message.content, !writing);
    showState(state, message, writing ? running : undefined, last ? actions.regenerate : null);
    buttons.hidden = writing;
    press.hidden = !message.content;
    again.hidden = !last || message.end === "broken";
    more.hidden = !last || !message.content || message.end === "stop";
    numbers.hidden = !message.numbers;
    if (message.numbers) showNumbers(numbers, message.numbers, writing);
  };
  update();
  return { element, update };
}

/** One line on why there is no text yet, or no more. */
function showState(line: HTMLElement, message: Message, running: { waiting: string } | undefined, again: (() => void) | null): void {
  const ends = { stop: "", length: "Ended at the limit of tokens.", stopped: "Stopped.", broken: message.error ?? "" };
  const wrong = !running && message.end === "broken";
  const begun = Boolean(message.content || message.reasoning);
  const text = running ? running.waiting || (begun ? "" : "Waiting for the first token") : ends[message.end ?? "stopped"];
  line.hidden = !text;
  line.classList.toggle("wrong", wrong);
  line.classList.toggle("pulse", Boolean(running));
  if (line.dataset["text"] === text) return;
  line.dataset["text"] = text;
  line.replaceChildren(h("span", {}, text), ...(wrong && again ? [button("Try again", again)] : []));
}

function showNumbers(details: HTMLDetailsElement, numbers: Numbers, writing: boolean): void {
  const rate = numbers.tokensPerSecond ? ` · ${significant(numbers.tokensPerSecond)} tokens/s` : "";
  const line = `TTFT ${milliseconds(numbers.ttftMs)}${rate} · ${whole(numbers.tokens)} ${numbers.tokens === 1 ? "token" : "tokens"}`;
  const summary = details.querySelector("summary") ?? details.appendChild(h("summary"));
  setText(summary, line);
  if (writing || details.querySelector("dl")) return;
  const rows: [string, string][] = [["First token, seen here", milliseconds(numbers.ttftMs)]];
  if (numbers.serverPromptMs !== undefined) rows.push(["First token, on the server", milliseconds(numbers.serverPromptMs)]);
  if (numbers.serverQueueMs !== undefined) rows.push(["Time in the queue", milliseconds(numbers.serverQueueMs)]);
  if (numbers.promptTokens !== undefined) rows.push(["Tokens of the prompt", whole(numbers.promptTokens)]);
  if (numbers.cachedTokens !== undefined) rows.push(["of these, cached", whole(numbers.cachedTokens)]);
  if (numbers.storedTokens !== undefined) rows.push(["of these, from the prefix store", whole(numbers.storedTokens)]);
  if (numbers.fileTokens !== undefined) rows.push(["of these, from files", whole(numbers.fileTokens)]);
  details.append(h("dl", {}, ...rows.flatMap(([name, value]) => [h("dt", {}, name), h("dd", {}, value)])));
}
