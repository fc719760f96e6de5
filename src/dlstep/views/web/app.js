/** The page: connects its parts, and draws at most once per frame of the screen. */
import { api } from "./api.js";
import { Ask } from "./ask.js";
import { drawCell, drawHead, drawPlan } from "./details.js";
import { fill, mark, say, the } from "./dom.js";
import { ForkDialog, Tree, hindrance, ownerOf } from "./forks.js";
import { contentsOf, download, embedded, fragment, opened, recording, runsOf } from "./keep.js";
import { written } from "./json.js";
import { Keys } from "./keys.js";
import { dismiss, Live, notice } from "./live.js";
import { legend, palette } from "./scale.js";
import { shown } from "./shown.js";
import { Stage } from "./stage.js";
import { answerOf } from "./state.js";
import { Store } from "./store.js";
import { themes } from "./theme.js";
import { Time, frameText } from "./time.js";

const RETRY = 1000; // milliseconds between two checks of whether the model is loaded

class App {
  constructor() {
    this.colours = null;
    this.due = false;
    this.known = null;
    this.store = new Store(() => this.soon());
    const act = this.acts();
    this.stage = new Stage(this.store, act);
    this.tree = new Tree(this.store, act);
    this.time = new Time((index, following) => this.store.go(index, following));
    this.live = new Live(() => this.store.focused);
    this.ask = new Ask((requests) => this.generate(requests));
    this.fork = new ForkDialog((entry, index, body) => this.again(entry, index, body));
    the("time").prepend(...this.time.elements(the("fork-here")));
    fill(the("legend"), legend());
    const turn = themes(() => {
      this.colours = null;
      this.soon();
    });
    this.keys = new Keys(this.shortcuts(turn));
    this.buttons();
    this.dropping();
  }

  acts() {
    const { store } = this;
    return {
      later: () => this.soon(),
      select: (position, key) => store.select(position, key),
      step: (by) => this.time.by(by),
      focus: (key) => key !== store.focus && store.select(store.selected, key),
      pick: (key, index, position) => {
        store.select(position, key);
        this.time.move(index);
      },
      stop: (key) => this.stop(key),
      hide: (key) => store.show(store.shown.filter((each) => each !== key)),
      jump: (index) => this.time.move(index),
      alone: (key) => store.show([key]),
      beside: (key, on) => store.show(on ? [...store.shown, key] : store.shown.filter((each) => each !== key), on ? key : undefined),
    };
  }

  shortcuts(turn) {
    return {
      ArrowLeft: ["one frame back", () => this.time.by(-1)],
      ArrowRight: ["one frame forward", () => this.time.by(1)],
      Home: ["to the first frame", () => this.time.move(0)],
      End: ["to the last frame", () => this.time.toEnd()],
      " ": ["play or pause", () => this.time.toggle()],
      f: ["fork the focused run at this frame", () => this.forkHere()],
      n: ["focus the next run", () => this.nextRun()],
      p: ["go to the prompt", () => the("prompt").focus()],
      s: ["save the displayed runs", () => this.save()],
      o: ["open a recording", () => the("file").click()],
      l: ["copy a link", () => this.link()],
      t: ["switch the theme", turn],
      "?": ["show this list", () => the("help").showModal()],
    };
  }

  buttons() {
    const clicks = {
      fork_here: () => this.forkHere(), save: () => this.save(), open: () => the("file").click(), link: () => this.link(),
      help_open: () => the("help").showModal(), help_close: () => the("help").close(), key_open: () => the("key").showModal(), key_close: () => the("key").close(),
    };
    for (const [id, call] of Object.entries(clicks)) the(id.replace("_", "-")).addEventListener("click", call);
    the("file").addEventListener("change", () => {
      if (the("file").files[0]) this.openFile(the("file").files[0]);
      the("file").value = "";
    });
    the("key-form").addEventListener("submit", (event) => {
      event.preventDefault();
      api.useKey(the("key-text").value);
      the("key").close();
      this.connect();
    });
  }

  dropping() {
    addEventListener("dragover", (event) => {
      event.preventDefault();
      the("drop").hidden = false;
    });
    addEventListener("dragleave", (event) => {
      if (!event.relatedTarget) the("drop").hidden = true;
    });
    addEventListener("drop", (event) => {
      event.preventDefault();
      the("drop").hidden = true;
      const [file] = event.dataTransfer.files;
      if (file) this.openFile(file);
    });
  }

  /** Draw with the next frame of the screen, once for all changes until then. */
  soon() {
    if (this.due) return;
    this.due = true;
    requestAnimationFrame(() => {
      this.due = false;
      this.draw();
    });
  }

  draw() {
    const { store } = this;
    this.colours ??= palette();
    this.stage.draw(this.colours);
    this.tree.draw();
    const entry = store.focused, index = entry ? store.momentOf(entry) : 0;
    this.time.draw(store.at, store.last, frameText(store.at, store.last, entry?.run.moments[index]));
    drawCell(the("cell"), entry?.run ?? null, index, store.selected);
    drawPlan(the("plan"), entry?.run.moments[index]);
    if (!the("alone").hidden) drawHead(the("head"), entry?.run ?? null);
    say(the("side-run"), entry && store.shown.length > 1 ? `of run ${entry.name}` : "");
    const reason = hindrance(store, entry, index, this.known !== null);
    mark(the("fork-here"), "aria-disabled", reason ? "true" : null);
    mark(the("fork-here"), "title", reason ?? `Continue run ${entry.name} from frame ${index} with other options`);
    this.live.follow();
  }

  async start() {
    const found = embedded();
    if (found) {
      this.ask.refuse("This page contains a recording and works without a server.");
      this.adopt(runsOf(found));
      for (const id of ["link", "key-open"]) the(id).hidden = true;
      say(the("model"), shown(found.runs[0]?.head.model));
      return;
    }
    await this.connect();
  }

  /** Fetch the options of the server and the description of its model. Wait while the model loads; ask for an API key if the server requires one. */
  async connect() {
    const begin = Date.now();
    let known = null, description = "";
    while (!known) {
      try {
        description = await api.description();
        known = await api.options();
      } catch (error) {
        if (error.status === 503 || error.status === 0) await this.waits(error.message, begin);
        else {
          the("loading").hidden = true;
          if (error.status === 401) the("key").showModal();
          else notice(error.message, true);
          return;
        }
      }
    }
    this.known = known;
    the("loading").hidden = true;
    say(the("model"), shown(this.known.model));
    this.ask.learn(this.known, description);
    const contents = contentsOf(location.hash);
    if (contents) {
      this.ask.fill(contents);
      await this.recall(contents.kept);
    }
    this.soon();
  }

  /** Show why the server cannot answer yet, and wait before the next check. */
  async waits(reason, begin) {
    the("loading").hidden = false;
    say(the("loading-why"), `${reason[0].toUpperCase()}${reason.slice(1)}`);
    say(the("loading-time"), `${Math.round((Date.now() - begin) / 1000)} s`);
    await new Promise((done) => setTimeout(done, RETRY));
  }

  /** Open the runs of a link that the server still keeps. */
  async recall(ids) {
    if (!Array.isArray(ids) || !ids.length) return;
    const runs = [];
    for (const id of ids) {
      try {
        runs.push(...(await api.kept(id)).runs);
      } catch (error) {
        notice(error.message, true);
      }
    }
    if (runs.length) this.adopt(runsOf({ dlstep_recording: 1, runs }));
  }

  generate(requests) {
    const entries = requests.map(({ label }) => this.store.open({ label }));
    this.store.at = 0;
    this.store.following = true;
    this.store.show(entries.map((entry) => entry.key), entries[0].key);
    requests.forEach(({ body }, place) => this.follow(entries[place], (take, signal) => api.generate(body, take, signal)));
    this.stageInSight();
  }

  again(parent, index, body) {
    const entry = this.store.open({ parent: parent.key, index });
    this.store.following = true;
    this.store.show([parent.key, entry.key], entry.key);
    this.follow(entry, (take, signal) => api.fork(parent.run.head.request, { index: parent.run.answer, ...body }, take, signal));
  }

  async follow(entry, ask) {
    entry.live = new AbortController();
    dismiss();
    try {
      await ask((frame, text) => this.store.take(entry.key, frame, text), entry.live.signal);
      if (!entry.run.finish) this.store.fail(entry.key, "the stream ended before the answer was complete");
    } catch (error) {
      if (error.name !== "AbortError") {
        this.store.fail(entry.key, error.message);
        notice(error.message, true);
        if (error.status === 401) the("key").showModal();
      }
    }
    entry.live = null;
    if (!entry.parent && this.store.shown[0] === entry.key && !entry.run.error) this.ask.answered(answerOf(entry.run));
    this.address();
    this.soon();
  }

  /** Write the displayed runs into the address, so that a reload opens them while the server keeps them. */
  address() {
    const kept = [...new Set(this.store.shown.flatMap((key) => this.store.lineage(key)))].map((entry) => entry.run.head?.request).filter(Boolean);
    history.replaceState(null, "", fragment({ ...this.ask.link, kept }));
  }

  async stop(key) {
    const entry = this.store.entries.get(key);
    if (!entry?.live) return;
    try {
      await api.cancel(entry.run.head.request);
    } catch {
      entry.live?.abort();
    }
  }

  forkHere() {
    const { store } = this, entry = store.focused;
    const index = entry ? store.momentOf(entry) : 0;
    const reason = hindrance(store, entry, index, this.known !== null);
    if (reason) return notice(`Cannot fork here: ${reason}.`);
    this.time.stop();
    return this.fork.open(ownerOf(store, entry, index), index, this.known);
  }

  nextRun() {
    const { shown, focus } = this.store;
    if (shown.length) this.store.select(this.store.selected, shown[(shown.indexOf(focus) + 1) % shown.length]);
  }

  /** Save the displayed runs and their parents. */
  save() {
    const entries = [...new Set(this.store.shown.flatMap((key) => this.store.lineage(key)))].filter((entry) => entry.run.head);
    if (!entries.length) return notice("There is nothing to save yet.");
    download("dlstep-recording.json", written(recording(entries)));
    return notice(`Saved ${entries.length === 1 ? "the run" : `${entries.length} runs`} as dlstep-recording.json.`);
  }

  async openFile(file) {
    try {
      const runs = await opened(file);
      this.adopt(runs);
      notice(`Opened ${file.name}.`);
    } catch (error) {
      notice(error.message, true);
    }
  }

  /** Add the runs of a recording to the page and display them. */
  adopt(runs) {
    const added = [];
    for (const { run } of runs) this.store.forget(run.head.request);
    for (const { run, parent, index, label } of runs) {
      const entry = this.store.open({ run, label });
      if (parent >= 0) Object.assign(entry, { parent: added[parent].key, index });
      added.push(entry);
    }
    this.store.at = 0;
    this.store.show(added.map((entry) => entry.key), added.at(-1)?.key);
    this.store.go(this.store.last, true);
    this.stageInSight();
  }

  async link() {
    this.address();
    try {
      await navigator.clipboard.writeText(location.href);
      notice("The link was copied. It contains the prompt and the options, and opens the runs while the server keeps them.");
    } catch {
      notice("The link is in the address bar. It contains the prompt and the options.");
    }
  }

  /** Scroll to the answer on narrow screens, where it is below the form. */
  stageInSight() {
    if (matchMedia("(max-width: 62rem)").matches) the("stage").scrollIntoView({ block: "start" });
  }
}

const app = new App();
window.addEventListener("resize", () => {
  app.colours = null; // the font size may have changed
  app.soon();
});
app.start().catch((error) => notice(error.message, true));
