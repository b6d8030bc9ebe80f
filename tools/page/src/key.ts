//! The API key: where it is kept, and the dialog that asks for it.

import { byId } from "./dom.ts";

const NAME = "corelane.key";
let asking: Promise<boolean> | null = null;

/** The key that this browser has, or an empty text. */
export function key(): string {
  return sessionStorage.getItem(NAME) ?? localStorage.getItem(NAME) ?? "";
}

/** Forgets the key here and in the browser's storage. */
export function forgetKey(): void {
  sessionStorage.removeItem(NAME);
  localStorage.removeItem(NAME);
}

/** Asks for a key. False if the dialog was closed without one. Two callers share one dialog. */
export function askForKey(): Promise<boolean> {
  asking ??= ask().finally(() => (asking = null));
  return asking;
}

function ask(): Promise<boolean> {
  const dialog = byId<HTMLDialogElement>("key-dialog");
  const form = dialog.querySelector("form")!;
  const field = form.elements.namedItem("key") as HTMLInputElement;
  const remember = form.elements.namedItem("remember") as HTMLInputElement;
  const reason = key() ? "The server refused this key. Check it and try again." : "This server needs an API key.";
  byId("key-reason").textContent = reason;
  byId("key-reason").classList.toggle("wrong", key() !== "");
  field.value = "";
  remember.checked = localStorage.getItem(NAME) !== null;

  return new Promise((resolve) => {
    let given = false;
    const submit = (): void => {
      given = true;
      forgetKey();
      (remember.checked ? localStorage : sessionStorage).setItem(NAME, field.value.trim());
    };
    form.addEventListener("submit", submit);
    dialog.addEventListener("close", () => {
      form.removeEventListener("submit", submit);
      field.value = "";
      resolve(given);
    }, { once: true });
    dialog.showModal();
    field.focus();
  });
}
