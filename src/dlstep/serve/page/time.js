/** Navigation through the moments of the displayed runs: a slider, buttons, and playback. */
import { make, mark, say, the } from "./dom.js";
import { counted } from "./shown.js";

export class Time {
  /** `go(index, following)` changes the moment; with `following`, the page follows running runs to their newest moment. */
  constructor(go) {
    this.go = go;
    this.at = 0;
    this.last = 0;
    this.timer = null;
    this.range = the("moment");
    this.range.addEventListener("input", () => this.move(Number(this.range.value)));
    const buttons = { first: () => this.move(0), back: () => this.by(-1), play: () => this.toggle(), forth: () => this.by(1), last: () => this.end() };
    for (const [id, call] of Object.entries(buttons)) the(id).addEventListener("click", call);
  }

  move(index, playing = false) {
    if (!playing) this.stop();
    this.at = Math.max(0, Math.min(this.last, index)); // not at the next drawing: keys may repeat faster
    this.go(this.at, index >= this.last);
  }

  by(steps) {
    this.move(this.at + steps);
  }

  end() {
    this.move(this.last);
  }

  toggle() {
    if (this.timer !== null) return this.stop();
    if (this.at >= this.last) this.go(0, false);
    const beat = () => {
      if (this.at >= this.last) return this.stop();
      this.move(this.at + 1, true);
      this.timer = setTimeout(beat, 1000 / Number(the("pace").value));
    };
    this.timer = setTimeout(beat, 400);
    this.label();
  }

  stop() {
    clearTimeout(this.timer);
    this.timer = null;
    this.label();
  }

  label() {
    const playing = this.timer !== null;
    mark(the("play"), "aria-label", playing ? "Pause" : "Play");
    say(the("play"), playing ? "❚❚" : "▶");
  }

  /** Show the current moment; `moment` belongs to the focused run. */
  draw(at, last, moment) {
    this.at = at;
    this.last = last;
    this.range.max = last;
    this.range.value = at;
    this.range.disabled = last <= 0;
    const text = moment ? `frame ${at} of ${last} · ${counted(moment.nfe, "forward pass")} · ${moment.settled} settled` : "no frames yet";
    say(the("where"), text);
    mark(this.range, "aria-valuetext", text);
    for (const id of ["first", "back"]) the(id).disabled = at <= 0;
    for (const id of ["forth", "last"]) the(id).disabled = at >= last;
    the("play").disabled = last <= 0;
  }
}

/** The choices of the playback speed, in frames per second. */
export function paces() {
  return [1, 2, 4, 8, 16].map((pace) => make("option", { value: pace, text: `${pace} / s` }));
}
