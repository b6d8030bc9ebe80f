//! Whether the server answers. While it does not, a banner says so, and `/health` is asked until it
//! does. While it does, nothing is asked.

import { messageOf } from "./api.ts";
import { byId, sentence, setText } from "./dom.ts";

/** Time between two questions: it doubles from the first to the last. */
const [WAIT_FIRST_MS, WAIT_LAST_MS] = [250, 4000];

type Seen = "ready" | "loading" | "gone";
interface Health {
  seen: Seen;
  message: string; // the server's own, if it is not ready
}

const back = new Set<() => void>();
let watching = false;
let hurry: (() => void) | null = null; // ends the current wait

/** Calls a function each time the server is back. */
export function onBack(call: () => void): void {
  back.add(call);
}

/** Something found the server gone or not ready: shows the banner until it is back. */
export function watch(seen: Exclude<Seen, "ready">, message = ""): void {
  show({ seen, message });
  if (!watching) void untilBack();
}

/** Resolves when the server is ready; rejects when the signal aborts. */
export async function ready(signal: AbortSignal): Promise<void> {
  await new Promise<void>((resolve, reject) => {
    const done = (): void => {
      back.delete(done);
      resolve();
    };
    back.add(done);
    signal.addEventListener("abort", () => {
      back.delete(done);
      reject(signal.reason as Error);
    });
    if (!watching) void untilBack();
  });
}

/** Asks once, and shows the banner if there is a reason. */
export async function check(): Promise<void> {
  const { seen, message } = await health();
  if (seen !== "ready") watch(seen, message);
  hurry?.();
}

async function untilBack(): Promise<void> {
  watching = true;
  for (let wait = WAIT_FIRST_MS; ; wait = Math.min(2 * wait, WAIT_LAST_MS)) {
    await new Promise<void>((resolve) => {
      hurry = resolve;
      setTimeout(resolve, wait);
    });
    hurry = null;
    const answer = await health();
    show(answer);
    if (answer.seen === "ready") break;
  }
  watching = false;
  for (const call of [...back]) call();
}

async function health(): Promise<Health> {
  try {
    const response = await fetch("health", { signal: AbortSignal.timeout(5000), cache: "no-store" });
    // A proxy answers 502 or 504 in place of a server that is gone.
    if (response.ok) return { seen: "ready", message: "" };
    return { seen: response.status === 503 ? "loading" : "gone", message: await messageOf(response) };
  } catch {
    return { seen: "gone", message: "" };
  }
}

function show({ seen, message }: Health): void {
  const banner = byId("banner");
  banner.hidden = seen === "ready";
  banner.dataset["state"] = seen;
  if (seen === "gone") setText(banner, "The server does not answer. This page tries again by itself.");
  if (seen === "loading") setText(banner, `${sentence(message)} This page goes on by itself when the server is ready.`);
}
