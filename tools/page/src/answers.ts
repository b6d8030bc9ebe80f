//! Asks the server for answers and collects them while they stream. It draws nothing.

import { ApiError, events, request } from "./api.ts";
import { check, ready, watch } from "./connection.ts";
import type { Conversation, Message } from "./conversations.ts";
import { sentence } from "./dom.ts";
import { sampling, systemPrompt } from "./settings.ts";

/** An answer that is being written. */
export interface Running {
  message: Message;
  stop: () => void;
  waiting: string; // why nothing comes yet, if the server said so
}

interface Chunk {
  error?: { message?: string };
  choices?: { delta?: { content?: string | null; reasoning_content?: string | null }; finish_reason?: string | null }[];
  usage?: { prompt_tokens: number; completion_tokens: number; prompt_tokens_details?: { cached_tokens?: number } } | null;
  timings?: {
    queued_ms?: number;
    prompt_ms?: number;
    predicted_per_second?: number;
    cache_store_n?: number;
    cache_disk_n?: number;
  };
}

const running = new Map<string, Running>();

/** The answer that is being written in this conversation. */
export function runningIn(conversation: Conversation): Running | undefined {
  return running.get(conversation.id);
}

/**
 * Writes an answer into the conversation's last message. `changed` is called after each event;
 * the promise resolves when the answer has ended, however it ended.
 */
export async function answer(conversation: Conversation, model: string, changed: () => void): Promise<void> {
  const message = conversation.messages[conversation.messages.length - 1]!;
  const controller = new AbortController();
  const own: Running = { message, stop: () => controller.abort(), waiting: "" };
  running.set(conversation.id, own);
  delete message.end;
  delete message.error;
  try {
    await whenReady(own, controller.signal, changed, () => stream(conversation, message, model, controller.signal, changed));
    message.end ??= "stop";
  } catch (error) {
    message.end = controller.signal.aborted ? "stopped" : "broken";
    if (message.end === "broken") message.error = error instanceof Error ? error.message : String(error);
  } finally {
    // An edited question may have begun another answer meanwhile.
    if (running.get(conversation.id) === own) running.delete(conversation.id);
  }
}

/** Runs a request, and again when a server that is not ready has become so. */
async function whenReady(own: Running, signal: AbortSignal, changed: () => void, run: () => Promise<void>): Promise<void> {
  for (;;) {
    try {
      return await run();
    } catch (error) {
      if (!(error instanceof ApiError && error.status === 503)) throw error;
      own.waiting = `${sentence(error.message)} The question is asked again when the server is ready.`;
      changed();
      watch("loading", error.message);
      await ready(signal);
      own.waiting = "";
      changed();
    }
  }
}

async function stream(conversation: Conversation, message: Message, model: string, signal: AbortSignal, changed: () => void): Promise<void> {
  let sent = 0; // without the time in which the user types a key
  let first = 0;
  let tokens = 0;
  const response = await request("v1/chat/completions", body(conversation, model), signal, () => {
    sent = performance.now();
  });
  for await (const event of events(response, signal)) {
    const chunk = event as Chunk;
    if (chunk.error) throw new ApiError(200, chunk.error.message ?? "The server ended the answer with an error.");
    const choice = chunk.choices?.[0];
    const { content, reasoning_content: reasoning } = choice?.delta ?? {};
    if (content || reasoning) {
      const now = performance.now();
      first ||= now;
      tokens += 1; // most events carry one token; the exact number comes last
      message.content += content ?? "";
      if (reasoning) message.reasoning = (message.reasoning ?? "") + reasoning;
      const tokensPerSecond = now > first ? ((tokens - 1) * 1000) / (now - first) : 0;
      message.numbers = { ttftMs: first - sent, tokensPerSecond, tokens };
    }
    if (choice?.finish_reason) message.end = choice.finish_reason === "length" ? "length" : "stop";
    takeNumbers(message, chunk);
    changed();
  }
  if (message.end) return;
  void check(); // a proxy can end the stream in the name of a server that is gone
  throw new Error("The answer broke off.");
}

/** The exact figures, which come with the last events. */
function takeNumbers(message: Message, { usage, timings }: Chunk): void {
  const numbers = message.numbers;
  if (!numbers) return;
  if (usage) {
    numbers.tokens = usage.completion_tokens;
    numbers.promptTokens = usage.prompt_tokens;
    numbers.cachedTokens = usage.prompt_tokens_details?.cached_tokens ?? 0;
  }
  if (timings?.predicted_per_second) numbers.tokensPerSecond = timings.predicted_per_second;
  if (timings?.prompt_ms !== undefined) numbers.serverPromptMs = timings.prompt_ms;
  if (timings?.queued_ms !== undefined) numbers.serverQueueMs = timings.queued_ms;
  if (timings?.cache_store_n) numbers.storedTokens = timings.cache_store_n;
  if (timings?.cache_disk_n) numbers.fileTokens = timings.cache_disk_n;
}

/** The body of the request. An answer that has begun is continued. */
function body(conversation: Conversation, model: string): Record<string, unknown> {
  const messages: { role: string; content: string }[] = [];
  if (systemPrompt().trim()) messages.push({ role: "system", content: systemPrompt() });
  for (const { role, content } of conversation.messages) {
    const last = messages[messages.length - 1];
    if (!content) continue; // an answer that failed
    // Many templates refuse two messages of the user in a row.
    if (last?.role === role) last.content += `\n\n${content}`;
    else messages.push({ role, content });
  }
  const continues = messages[messages.length - 1]?.role === "assistant";
  return {
    ...(model ? { model } : {}),
    messages,
    stream: true,
    stream_options: { include_usage: true },
    ...(continues ? { continue_final_message: true, add_generation_prompt: false } : {}),
    ...sampling(),
  };
}
