//! The settings dialog: system prompt, sampling and theme, kept in the browser's storage.

import { byId } from "./dom.ts";
import { forgetKey, key } from "./key.ts";

const NAME = "corelane.settings";
const NUMBERS = ["temperature", "top_p", "top_k", "min_p", "max_tokens", "seed"] as const;
const THEMES = ["system", "light", "dark"] as const;
type Theme = (typeof THEMES)[number];

interface Settings {
  system: string;
  sampling: Partial<Record<(typeof NUMBERS)[number], number>>; // a missing one is the server's choice
  theme: Theme;
}

let settings = load();
const themed = new Set<() => void>();

export function systemPrompt(): string {
  return settings.system;
}

/** Fields of the request. */
export function sampling(): Record<string, number> {
  return { ...settings.sampling };
}

/** Calls a function each time the colours change. */
export function onTheme(call: () => void): void {
  themed.add(call);
}

/** Connects the dialog and the buttons that belong to it. */
export function start(): void {
  const dialog = byId<HTMLDialogElement>("settings");
  const form = dialog.querySelector("form")!;
  const dark = matchMedia("(prefers-color-scheme: dark)");
  const isDark = (): boolean => settings.theme === "dark" || (settings.theme === "system" && dark.matches);

  const applyTheme = (): void => {
    document.documentElement.dataset["theme"] = settings.theme;
    byId("theme").setAttribute("aria-pressed", String(isDark()));
    for (const call of themed) call();
  };
  byId("theme").addEventListener("click", () => {
    store({ ...settings, theme: isDark() ? "light" : "dark" });
    applyTheme();
  });
  dark.addEventListener("change", applyTheme);
  applyTheme();

  byId("open-settings").addEventListener("click", () => {
    write(form);
    byId("forget-key").hidden = !key();
    dialog.showModal();
  });
  byId("forget-key").addEventListener("click", () => {
    forgetKey();
    byId("forget-key").hidden = true;
  });
  form.addEventListener("submit", () => {
    store(read(form));
    applyTheme();
  });
  for (const close of document.querySelectorAll("[data-close]")) {
    close.addEventListener("click", () => close.closest("dialog")!.close());
  }
}

function write(form: HTMLFormElement): void {
  field(form, "system").value = settings.system;
  for (const name of NUMBERS) field(form, name).value = String(settings.sampling[name] ?? "");
  field(form, "theme").value = settings.theme;
}

function read(form: HTMLFormElement): Settings {
  const sampling: Settings["sampling"] = {};
  for (const name of NUMBERS) {
    const text = field(form, name).value;
    if (text !== "") sampling[name] = Number(text);
  }
  return { system: field(form, "system").value, sampling, theme: field(form, "theme").value as Theme };
}

function field(form: HTMLFormElement, name: string): { value: string } {
  return form.elements.namedItem(name) as HTMLInputElement | RadioNodeList;
}

function load(): Settings {
  const known: Settings = { system: "", sampling: {}, theme: "system" };
  try {
    const stored = JSON.parse(localStorage.getItem(NAME) ?? "{}") as Partial<Settings>;
    if (typeof stored.system === "string") known.system = stored.system;
    if (stored.theme && THEMES.includes(stored.theme)) known.theme = stored.theme;
    for (const name of NUMBERS) {
      const value = stored.sampling?.[name];
      if (typeof value === "number") known.sampling[name] = value;
    }
  } catch {
    // What is there was not written by this page.
  }
  return known;
}

function store(next: Settings): void {
  settings = next;
  try {
    localStorage.setItem(NAME, JSON.stringify(next));
  } catch {
    // The storage is full; the settings hold until the page is left.
  }
}
