//! Conversations, kept in the browser's storage: one entry each, so that two tabs seldom collide.

/** Conversations that are kept; the oldest goes when one more begins. */
export const CONVERSATIONS_MAX = 200;
const PREFIX = "corelane.chat.";
const TITLE_MAX = 60;

/** Figures of an answer. The `server` ones are from the server's own clock. */
export interface Numbers {
  ttftMs: number;
  tokensPerSecond: number;
  tokens: number;
  promptTokens?: number;
  cachedTokens?: number;
  storedTokens?: number; // of these, from the prefix store
  fileTokens?: number; // of those, from its files
  serverQueueMs?: number;
  serverPromptMs?: number;
}

export interface Message {
  role: "user" | "assistant";
  content: string;
  reasoning?: string;
  numbers?: Numbers;
  end?: "stop" | "length" | "stopped" | "broken"; // missing while it is being written
  error?: string;
}

export interface Conversation {
  id: string;
  title: string;
  changed: number; // milliseconds since 1970
  messages: Message[];
}

/** A conversation without messages. It is stored when it has one. */
export function begin(): Conversation {
  // randomUUID exists only with TLS or on localhost.
  const id = Array.from(crypto.getRandomValues(new Uint32Array(3)), (n) => n.toString(36)).join("");
  return { id, title: "New chat", changed: Date.now(), messages: [] };
}

/** All conversations in storage, the newest first. */
export function load(): Conversation[] {
  const found: Conversation[] = [];
  for (const name of Object.keys(localStorage)) {
    if (!name.startsWith(PREFIX)) continue;
    const conversation = read(localStorage.getItem(name) ?? "");
    if (conversation) found.push(conversation);
  }
  return found.sort((a, b) => b.changed - a.changed);
}

/** Stores a conversation. Returns a sentence that says why it could not. */
export function save(conversation: Conversation): string | null {
  const text = JSON.stringify(conversation);
  try {
    if (localStorage.getItem(PREFIX + conversation.id) === null) {
      for (const old of load().slice(CONVERSATIONS_MAX - 1)) remove(old.id);
    }
    localStorage.setItem(PREFIX + conversation.id, text);
    return null;
  } catch {
    return "The browser’s storage is full, so this conversation is not kept. Delete old ones to make room.";
  }
}

export function remove(id: string): void {
  localStorage.removeItem(PREFIX + id);
}

/** Whether an entry of the storage is a conversation; `null` stands for all entries. */
export function isConversation(name: string | null): boolean {
  return name === null || name.startsWith(PREFIX);
}

/** The first words of a message. */
export function titleOf(text: string): string {
  const line = text.trim().replace(/\s+/g, " ");
  return line.length <= TITLE_MAX ? line : `${line.slice(0, TITLE_MAX - 1).trimEnd()}…`;
}

function read(text: string): Conversation | null {
  try {
    const value = JSON.parse(text) as Partial<Conversation>;
    const known = typeof value.id === "string" && typeof value.title === "string" && typeof value.changed === "number";
    const messages = (value.messages ?? []).filter((m) => typeof m.content === "string" && (m.role === "user" || m.role === "assistant"));
    return known ? { ...(value as Conversation), messages } : null;
  } catch {
    return null;
  }
}
