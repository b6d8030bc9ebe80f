//! The chat: the list of conversations, the messages and the field below them.

import { answer, runningIn } from "./answers.ts";
import { begin, isConversation, load, remove, save, titleOf, type Conversation, type Message } from "./conversations.ts";
import { announce, button, byId, h } from "./dom.ts";
import { answerView, userView, type Actions, type View } from "./messages.ts";

/** An answer is stored this often while it is written. */
const SAVE_EVERY_MS = 1000;
/** A reader this close to the end follows the answer. */
const NEAR_END_PX = 48;

let conversations: Conversation[] = [];
let current = begin();
let lastView: View | null = null; // of the last message
let atEnd = true; // the reader is at the end of the messages
let model = "";
let showChat: () => void = () => undefined;

/** Shows the newest conversation. `show` brings the chat into view on a narrow screen. */
export function start(show: () => void): void {
  showChat = show;
  conversations = load();
  current = conversations[0] ?? current;
  connect();
  drawAll();
  byId("prompt").focus();
}

export function setModel(name: string): void {
  model = name;
  if (!current.messages.length) drawMessages();
}

function connect(): void {
  const prompt = byId<HTMLTextAreaElement>("prompt");
  const log = byId("log");
  byId("composer").addEventListener("submit", (event) => {
    event.preventDefault();
    const running = runningIn(current);
    if (running) running.stop();
    else send();
  });
  prompt.addEventListener("keydown", (event) => {
    if (event.key !== "Enter" || event.shiftKey || event.isComposing) return;
    event.preventDefault();
    if (!runningIn(current)) send();
  });
  prompt.addEventListener("input", () => fit(prompt));
  log.addEventListener("scroll", () => {
    atEnd = log.scrollTop + log.clientHeight >= log.scrollHeight - NEAR_END_PX;
  });
  const resized = new ResizeObserver(follow);
  resized.observe(log);
  resized.observe(byId("messages"));
  byId("new-chat").addEventListener("click", newChat);
  document.addEventListener("keydown", (event) => {
    if (document.querySelector("dialog[open]")) return;
    if (event.key === "Escape") runningIn(current)?.stop();
    if (event.key.toLowerCase() === "k" && (event.ctrlKey || event.metaKey) && !event.shiftKey && !event.altKey) {
      event.preventDefault();
      newChat();
    }
  });
  addEventListener("pagehide", () => {
    for (const conversation of conversations) if (runningIn(conversation)) save(conversation);
  });
  addEventListener("storage", fromOtherTab);
}

function send(): void {
  const prompt = byId<HTMLTextAreaElement>("prompt");
  const text = prompt.value.trim();
  if (!text) return;
  prompt.value = "";
  fit(prompt);
  notice("");
  ask(text);
}

/** Adds a message of the user to the current conversation, and has it answered. */
function ask(text: string): void {
  if (!current.messages.length) {
    current.title = titleOf(text);
    conversations.unshift(current);
  }
  current.messages.push({ role: "user", content: text }, { role: "assistant", content: "" });
  void write(current);
}

const actions: Actions = {
  edit: (index, text) => {
    runningIn(current)?.stop();
    current.messages.length = index;
    if (index === 0) {
      current.title = titleOf(text);
      conversations = conversations.filter((other) => other !== current);
    }
    ask(text);
    byId("prompt").focus();
  },
  regenerate: () => {
    current.messages.pop();
    current.messages.push({ role: "assistant", content: "" });
    void write(current);
    byId("prompt").focus();
  },
  resume: () => {
    void write(current);
    byId("prompt").focus();
  },
};

/** Has the last message of a conversation written, and draws it while it grows. */
async function write(conversation: Conversation): Promise<void> {
  const message = conversation.messages[conversation.messages.length - 1]!;
  conversation.changed = Date.now();
  conversations.sort((a, b) => b.changed - a.changed);
  let saved = performance.now();
  const ended = answer(conversation, model, () => {
    drawSoon(conversation);
    if (performance.now() - saved < SAVE_EVERY_MS) return;
    saved = performance.now();
    keep(conversation);
  });
  keep(conversation);
  atEnd = true;
  drawAll();
  await ended;
  conversation.changed = Date.now();
  keep(conversation);
  announce(outcome(message));
  drawList();
  if (conversation !== current) return;
  lastView?.update();
  drawButton();
}

function outcome(message: Message): string {
  if (message.end === "broken") return `The answer failed. ${message.error ?? ""}`;
  return message.end === "stopped" ? "Answer stopped" : `Answer complete, ${message.numbers?.tokens ?? 0} tokens`;
}

function keep(conversation: Conversation): void {
  // A conversation that was deleted while its answer ran stays deleted.
  if (!conversations.includes(conversation)) return;
  const problem = save(conversation);
  if (problem) notice(problem);
}

let drawing = false;
let drawn = 0; // when the last drawing ended
let cost = 0; // milliseconds that it took

/** Draws the answer once for all events of a frame, in at most a quarter of the time. */
function drawSoon(conversation: Conversation): void {
  if (conversation !== current || drawing) return;
  drawing = true;
  const draw = (): void => {
    const began = performance.now();
    if (began - drawn < 3 * cost) {
      requestAnimationFrame(draw);
      return;
    }
    drawing = false;
    lastView?.update();
    drawn = performance.now();
    cost = drawn - began;
  };
  requestAnimationFrame(draw);
}

/** Keeps the end in view for a reader who was there before the messages grew. */
function follow(): void {
  const log = byId("log");
  if (atEnd) log.scrollTop = log.scrollHeight;
}

function drawAll(): void {
  drawList();
  drawMessages();
}

function drawMessages(): void {
  const { messages } = current;
  const views = messages.map((message, i) => {
    const last = i === messages.length - 1;
    return message.role === "user" ? userView(message, i, actions) : answerView(current, message, last, actions);
  });
  lastView = views[views.length - 1] ?? null;
  byId("messages").replaceChildren(...(views.length ? views.map((view) => view.element) : [greeting()]));
  drawButton();
  document.title = current.messages.length ? `${current.title} · corelane` : "corelane";
  follow();
}

function drawButton(): void {
  const writing = runningIn(current) !== undefined;
  byId("send").textContent = writing ? "Stop" : "Send";
  byId("send").classList.toggle("stop", writing);
}

function greeting(): HTMLElement {
  return h("div", { class: "greeting" },
    h("h2", {}, model ? `Ask ${model}` : "Ask a question"),
    h("p", {}, "The answer comes from this server and stays in this browser. Open Lanes to see how the server computes it."));
}

function drawList(): void {
  const rows = conversations.map((conversation) => {
    const open = button(conversation.title, () => {
      current = conversation;
      atEnd = true;
      drawAll();
      showChat();
      byId("prompt").focus();
    }, { class: "open" });
    if (conversation === current) open.setAttribute("aria-current", "true");
    if (runningIn(conversation)) open.classList.add("running");
    const gone = button("×", () => forget(conversation), { class: "delete", "aria-label": `Delete “${conversation.title}”` });
    return h("li", {}, open, gone);
  });
  byId("conversations").replaceChildren(...rows);
}

function newChat(): void {
  if (current.messages.length) current = begin();
  atEnd = true;
  notice("");
  drawAll();
  showChat();
  byId("prompt").focus();
}

function forget(conversation: Conversation): void {
  runningIn(conversation)?.stop();
  conversations = conversations.filter((other) => other !== conversation);
  remove(conversation.id);
  if (conversation === current) current = conversations[0] ?? begin();
  drawAll();
  notice("Conversation deleted.", "Undo", () => {
    conversations = [conversation, ...conversations].sort((a, b) => b.changed - a.changed);
    current = conversation;
    notice("");
    keep(conversation);
    drawAll();
    byId("prompt").focus();
  });
  byId("new-chat").focus();
}

/** A sentence above the field, with a button perhaps. */
function notice(text: string, label = "", click: () => void = () => undefined): void {
  const element = byId("notice");
  element.hidden = !text;
  element.replaceChildren(text, ...(label ? [button(label, click, { class: "plain" })] : []));
}

/** Another tab stored or deleted a conversation. Those that this tab writes stay as they are. */
function fromOtherTab(event: StorageEvent): void {
  if (!isConversation(event.key)) return;
  const own = conversations.filter((conversation) => runningIn(conversation));
  const stored = load().filter((conversation) => !own.some((other) => other.id === conversation.id));
  conversations = [...own, ...stored].sort((a, b) => b.changed - a.changed);
  const before = current;
  current = conversations.find((conversation) => conversation.id === current.id) ?? current;
  drawList();
  if (current.changed !== before.changed) drawMessages();
}

/** Lets the field grow with its text; its largest height is in the style sheet. */
function fit(field: HTMLTextAreaElement): void {
  field.style.height = "auto";
  field.style.height = `${field.scrollHeight + 2}px`;
}
