/** Navigation through moments: a slider, buttons, and playback. */
import { make, mark, say } from "./dom.js";
import { counted } from "./shown.js";

const PACES = [1, 2, 4, 8, 16]; // moments per second

export class Time {
  /** `go(index, following)` changes the moment; with `following`, the caller stays at the newest moment. Labels call a moment `noun`. */
  constructor(go, noun = "frame") {
    this.go = go;
    this.at = 0;
    this.last = 0;
    this.timer = null;
    this.range = make("input", { type: "range", id: "moment", min: 0, max: 0, value: 0, step: 1, "aria-label": noun[0].toUpperCase() + noun.slice(1) });
    this.range.addEventListener("input", () => this.move(Number(this.range.value)));
    const button = (id, label, text, click) => make("button", { type: "button", id, "aria-label": label, text, on: { click } });
    this.first = button("first", `First ${noun}`, "⇤", () => this.move(0));
    this.back = button("back", `One ${noun} back`, "←", () => this.by(-1));
    this.play = button("play", "Play", "▶", () => this.toggle());
    this.forth = button("forth", `One ${noun} forward`, "→", () => this.by(1));
    this.end = button("last", `Last ${noun}`, "⇥", () => this.toEnd());
    this.pace = make("select", { id: "pace", "aria-label": "Speed" }, ...PACES.map((pace) => make("option", { value: pace, text: `${pace} / s` })));
    this.pace.value = "4";
    this.where = make("span", { id: "where", class: "soft" });
  }

  /** The elements of the bar, with `more` after the buttons. */
  elements(...more) {
    return [this.range, make("div", { class: "row" }, this.first, this.back, this.play, this.forth, this.end, this.pace, this.where, ...more)];
  }

  move(index, playing = false) {
    if (!playing) this.stop();
    this.at = Math.max(0, Math.min(this.last, index)); // not at the next drawing: keys may repeat faster
    this.go(this.at, index >= this.last);
  }

  by(steps) {
    this.move(this.at + steps);
  }

  toEnd() {
    this.move(this.last);
  }

  toggle() {
    if (this.timer !== null) return this.stop();
    if (this.at >= this.last) this.go(0, false);
    const beat = () => {
      if (this.at >= this.last) return this.stop();
      this.move(this.at + 1, true);
      this.timer = setTimeout(beat, 1000 / Number(this.pace.value));
    };
    this.timer = setTimeout(beat, 400);
    return this.label();
  }

  stop() {
    clearTimeout(this.timer);
    this.timer = null;
    this.label();
  }

  label() {
    const playing = this.timer !== null;
    mark(this.play, "aria-label", playing ? "Pause" : "Play");
    say(this.play, playing ? "❚❚" : "▶");
  }

  /** Show the current moment and its description. */
  draw(at, last, text) {
    this.at = at;
    this.last = last;
    this.range.max = last;
    this.range.value = at;
    this.range.disabled = last <= 0;
    say(this.where, text);
    mark(this.range, "aria-valuetext", text);
    this.first.disabled = this.back.disabled = at <= 0;
    this.forth.disabled = this.end.disabled = at >= last;
    this.play.disabled = last <= 0;
  }
}

/** The description of a moment of a run. */
export function frameText(at, last, moment) {
  return moment ? `frame ${at} of ${last} · ${counted(moment.nfe, "forward pass")} · ${moment.settled} settled` : "no frames yet";
}
