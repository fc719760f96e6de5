/** Light and dark themes: the theme of the system, unless the button selects another. The choice is not stored. */
import { say, the } from "./dom.js";

const CHOICES = ["auto", "light", "dark"];
const NAMES = { auto: "◐ Auto", light: "☀ Light", dark: "☾ Dark" };

/** Set up the theme button. Calls `changed` whenever colours change; returns the function that switches the theme. */
export function themes(changed) {
  const root = document.documentElement, button = the("theme");
  const system = matchMedia("(prefers-color-scheme: dark)");
  let choice = "auto";
  const apply = () => {
    root.dataset.theme = choice === "auto" ? (system.matches ? "dark" : "light") : choice;
    say(button, NAMES[choice]);
    button.setAttribute("aria-label", `Theme: ${choice}`);
    changed();
  };
  const turn = () => {
    choice = CHOICES[(CHOICES.indexOf(choice) + 1) % CHOICES.length];
    apply();
  };
  system.addEventListener("change", apply);
  button.addEventListener("click", turn);
  apply();
  return turn;
}
