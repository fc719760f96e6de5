/** What a screen reader is told: settled text, a piece at a time, and notices. */
import { say, the } from "./dom.js";
import { shown } from "./shown.js";
import { answerOf } from "./state.js";

const PAUSE = 1200; // milliseconds between two pieces

export class Live {
  /** `focused()` is the entry that is looked at. */
  constructor(focused) {
    this.focused = focused;
    this.key = null;
    this.told = 0; // characters
    this.timer = null;
  }

  /** Tell what has settled of a running entry since the last time; one that was opened is read by its reader. */
  follow() {
    const entry = this.focused();
    if (!entry || this.timer !== null) return;
    if (entry.key !== this.key) {
      this.key = entry.key;
      this.told = entry.live ? 0 : Infinity;
    }
    const text = answerOf(entry.run);
    if (text.length <= this.told) return;
    say(the("live"), shown(text.slice(this.told)));
    this.told = entry.run.finish ? Infinity : text.length;
    this.timer = setTimeout(() => {
      this.timer = null;
      this.follow();
    }, PAUSE);
  }
}

let hiding = null;

/** A sentence at the foot of the page, for a while; a fault stays longer. */
export function notice(text, fault = false) {
  const element = the("notice");
  element.classList.toggle("fault", fault);
  element.hidden = false;
  say(element, shown(text));
  clearTimeout(hiding);
  hiding = setTimeout(() => {
    element.hidden = true;
    say(element, "");
  }, fault ? 12_000 : 5_000);
}
