//! The page: connects the views, and remembers which is open.

import * as chat from "./chat.ts";
import { check, onBack } from "./connection.ts";
import { setText } from "./dom.ts";
import * as lanes from "./lanes.ts";
import * as settings from "./settings.ts";

type View = "list" | "chat" | "lanes";

/** From this width on, the views stand side by side, and the panel of the lanes can be closed. */
const wide = matchMedia("(min-width: 1100px)");
const OPEN = "corelane.lanes";

const buttons = document.querySelectorAll<HTMLButtonElement>("[data-show]");
let panelOpen = localStorage.getItem(OPEN) === "open";
let view: View = "chat";

settings.start();
const showLanes = lanes.start(document.getElementById("lanes")!);
chat.start(() => show("chat"));
wide.addEventListener("change", apply);
for (const button of buttons) button.addEventListener("click", () => show(button.dataset["show"] as View));
document.addEventListener("visibilitychange", () => {
  if (document.visibilityState === "visible") void check();
});
onBack(() => void nameModel());
apply();
void nameModel();

function show(next: View): void {
  if (wide.matches && next === "lanes") {
    panelOpen = !panelOpen;
    localStorage.setItem(OPEN, panelOpen ? "open" : "closed");
  } else {
    view = next;
  }
  apply();
}

function apply(): void {
  document.body.dataset["view"] = view;
  document.body.dataset["panel"] = panelOpen ? "open" : "closed";
  for (const button of buttons) {
    const own = button.dataset["show"];
    button.setAttribute("aria-pressed", String(wide.matches && own === "lanes" ? panelOpen : own === view));
  }
  showLanes(wide.matches ? panelOpen : view === "lanes");
}

/** The model's name, from the public list. */
async function nameModel(): Promise<void> {
  try {
    const response = await fetch("v1/models");
    const { data } = (await response.json()) as { data?: { id: string }[] };
    const name = data?.[0]?.id ?? "";
    chat.setModel(name);
    for (const element of document.querySelectorAll("[data-model]")) setText(element, name);
  } catch {
    void check();
  }
}
