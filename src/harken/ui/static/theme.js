// Dark or light: as the system says, until a person chooses.
import { signal } from "./vendor/preact.js";

const KEPT = "harken.theme";
const system = matchMedia("(prefers-color-scheme: dark)");

/** "dark" or "light", as it is shown. */
export const theme = signal(shown());
system.addEventListener("change", () => (theme.value = shown()));

function shown() {
  return document.documentElement.dataset.theme ?? (system.matches ? "dark" : "light");
}

export function switchTheme() {
  const chosen = shown() === "dark" ? "light" : "dark";
  localStorage.setItem(KEPT, chosen);
  document.documentElement.dataset.theme = chosen;
  theme.value = chosen;
}
