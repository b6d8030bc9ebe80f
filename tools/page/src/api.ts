//! Requests to the server, and reading of its event streams.

import { watch } from "./connection.ts";
import { askForKey, key } from "./key.ts";

/** The server answered with an error; the message is the server's own. */
export class ApiError extends Error {
  readonly status: number;

  constructor(status: number, message: string) {
    super(message);
    this.status = status;
  }
}

/** The server did not answer, or the connection broke. */
export class Unreachable extends Error {}

/**
 * Sends a request. It asks for a key when the server does, and repeats the request with it. `sending` is called before
 * each try.
 */
export async function request(path: string, body: unknown, signal: AbortSignal, sending = (): void => {}): Promise<Response> {
  for (;;) {
    const used = key();
    sending();
    const response = await send(path, body, used, signal);
    if (response.ok) return response;
    const error = new ApiError(response.status, await messageOf(response));
    const newer = key() !== used;
    if (error.status === 401 && (newer || (await askForKey()))) continue;
    if (error.status === 502 || error.status === 504) watch("gone");
    throw error;
  }
}

/** The JSON at a path. */
export async function getJson<T>(path: string, signal: AbortSignal): Promise<T> {
  const response = await request(path, undefined, signal);
  return broken(signal, () => response.json() as Promise<T>);
}

/** The objects of an event stream, until `[DONE]` or its end. */
export async function* events(response: Response, signal: AbortSignal): AsyncGenerator<unknown> {
  const reader = response.body!.pipeThrough(new TextDecoderStream()).getReader();
  let rest = "";
  for (;;) {
    const { value, done } = await broken(signal, () => reader.read());
    if (done) return;
    const lines = (rest + value).split("\n");
    rest = lines.pop()!;
    for (const line of lines) {
      if (!line.startsWith("data:")) continue; // a comment, or the end of an event
      const data = line.slice("data:".length).trim();
      if (data === "[DONE]") return;
      yield JSON.parse(data);
    }
  }
}

async function send(path: string, body: unknown, key: string, signal: AbortSignal): Promise<Response> {
  const headers: Record<string, string> = key ? { authorization: `Bearer ${key}` } : {};
  if (body !== undefined) headers["content-type"] = "application/json";
  const text = body === undefined ? null : JSON.stringify(body);
  return broken(signal, () => fetch(path, { method: text === null ? "GET" : "POST", headers, body: text, signal, cache: "no-store" }));
}

/** Runs a part of a request, and names its failure: stopped by the user, or the server is gone. */
async function broken<T>(signal: AbortSignal, part: () => Promise<T>): Promise<T> {
  try {
    return await part();
  } catch {
    signal.throwIfAborted();
    watch("gone");
    throw new Unreachable("The server does not answer.");
  }
}

/** The server's own words for an error. */
export async function messageOf(response: Response): Promise<string> {
  const text = await response.text().catch(() => "");
  try {
    const { error } = JSON.parse(text) as { error?: { message?: string } | string };
    const message = typeof error === "string" ? error : error?.message;
    if (message) return message;
  } catch {
    // Not the server's own error; a proxy's, perhaps.
  }
  return `The server answered ${response.status} ${response.statusText}.`;
}
