//! The answer of `GET /lanes`, and the recent past that its answers add up to.

/** Times are microseconds of the server's clock. */
export interface Report {
  now_us: number;
  model: string;
  kernels: string;
  running: number;
  waiting: number;
  queue_limit: number;
  kv: { used: number; kept: number; capacity: number }; // tokens; `kept` are among the used
  slots: Slot[];
  steps: Table;
  late_causes: string[];
  ticks: Table;
  histograms: Record<"ttft_us" | "itl_us" | "queue_us" | "step_us", Histogram>;
}
export interface Slot {
  id: number;
  state: "idle" | "following" | "prefill" | "decode" | "busy";
  tokens: number;
  prompt_tokens: number;
  cached_tokens: number;
  decoded_tokens: number;
}
/** Counts since the start of the server. The last one counts values above all bounds. */
export interface Histogram {
  bounds?: number[];
  counts?: number[];
}
interface Table {
  fields: string[];
  values: number[][];
}

/** One batch that the model ran. */
export interface Step {
  step: number;
  sent: number; // by the front lane
  began: number; // in the decode lane
  modelled: number; // the model was done
  sampled: number; // its tokens were chosen
  received: number; // by the front lane
  bubble: number; // microseconds before `began` in which the decode lane had work and did not run
  prefill: number; // rows
  decode: number; // rows
  running: number;
  waiting: number;
  late: number; // tokens that came later than the bound on the time between two tokens
  cause: string; // of the last of them
}
/** A turn of the front lane. */
export interface Tick {
  began: number;
  ended: number;
}

/** Entries that are remembered. At 1,000 steps a second, they span the longest window. */
const ENTRIES_MAX = 30_000;
/** Entries older than this are forgotten: the longest window, and the delay before it is drawn. */
const AGE_MAX_US = 32_000_000;

/** Recent steps and ticks, the oldest first. */
export class Past {
  steps: Step[] = [];
  ticks: Tick[] = [];

  /** Adds the news of a report. Returns how many steps are new. */
  add(report: Report): number {
    // The server's clock starts with the server, so a new server starts a new past.
    const newest = this.steps[this.steps.length - 1];
    if (newest && newest.received > report.now_us) this.clear();
    const last = this.steps[this.steps.length - 1]?.step ?? -1;
    const steps = readSteps(report.steps, report.late_causes).filter(({ step }) => step > last);
    const began = this.ticks[this.ticks.length - 1]?.began ?? -1;
    const ticks = readTicks(report.ticks).filter((tick) => tick.began > began);
    this.steps = recent([...this.steps, ...steps], (step) => step.received, report.now_us);
    this.ticks = recent([...this.ticks, ...ticks], (tick) => tick.ended, report.now_us);
    return steps.length;
  }

  clear(): void {
    this.steps = [];
    this.ticks = [];
  }
}

/** The index of the first entry that does not lie before a time. */
export function firstFrom<T>(entries: T[], time: number, ends: (entry: T) => number): number {
  let [low, high] = [0, entries.length];
  while (low < high) {
    const middle = (low + high) >> 1;
    if (ends(entries[middle]!) < time) low = middle + 1;
    else high = middle;
  }
  return low;
}

function recent<T>(entries: T[], ends: (entry: T) => number, now: number): T[] {
  const old = firstFrom(entries, now - AGE_MAX_US, ends);
  return entries.slice(Math.max(old, entries.length - ENTRIES_MAX));
}

function readSteps({ fields, values }: Table, causes: string[]): Step[] {
  const at = columns(fields);
  return values.map((row) => {
    const get = (name: string): number => row[at[name] ?? -1] ?? 0;
    const modelled = get("began_us") + get("model_us");
    return {
      step: get("step"),
      sent: get("sent_us"),
      began: get("began_us"),
      modelled,
      sampled: modelled + get("sample_us"),
      received: get("received_us"),
      bubble: get("bubble_us"),
      prefill: get("prefill_rows"),
      decode: get("decode_rows"),
      running: get("running"),
      waiting: get("waiting"),
      late: get("late_tokens"),
      cause: (causes[get("late_cause")] ?? "").replace("_", " "),
    };
  });
}

function readTicks({ fields, values }: Table): Tick[] {
  const at = columns(fields);
  return values.map((row) => {
    const began = row[at["began_us"] ?? -1] ?? 0;
    return { began, ended: began + (row[at["took_us"] ?? -1] ?? 0) };
  });
}

function columns(fields: string[]): Record<string, number> {
  return Object.fromEntries(fields.map((name, i) => [name, i]));
}
