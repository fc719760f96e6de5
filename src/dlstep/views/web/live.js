/** Texts for screen readers: settled text, in pieces, and notices. */
import { say, the } from "./dom.js";
import { shown } from "./shown.js";
import { answerOf } from "./state.js";

const PIECE_PAUSE = 1200; // milliseconds between two pieces

export class Live {
  /** `focused()` returns the focused entry. */
  constructor(focused) {
    this.focused = focused;
    this.key = null;
    this.read = 0; // characters of the answer that were announced
    this.timer = null;
  }

  /** Announce the newly settled text of a running entry. The text of an opened recording is not announced. */
  follow() {
    const entry = this.focused();
    if (!entry || this.timer !== null) return;
    if (entry.key !== this.key) {
      this.key = entry.key;
      this.read = entry.live ? 0 : Infinity;
    }
    const text = answerOf(entry.run);
    if (text.length <= this.read) return;
    say(the("live"), shown(text.slice(this.read)));
    this.read = entry.run.finish ? Infinity : text.length;
    this.timer = setTimeout(() => {
      this.timer = null;
      this.follow();
    }, PIECE_PAUSE);
  }
}

let hiding = null;

/** Show a message at the bottom of the page for a few seconds; errors stay longer. */
export function notice(text, fault = false) {
  const element = the("notice");
  element.classList.toggle("fault", fault);
  element.hidden = false;
  say(element, shown(text));
  clearTimeout(hiding);
  hiding = setTimeout(dismiss, fault ? 12_000 : 5_000);
}

/** Hide the message, such as the error of an earlier run. */
export function dismiss() {
  the("notice").hidden = true;
  say(the("notice"), "");
}
