import { announce, h, iconButton, narrow } from "../dom.js";
import { textOf } from "../messages/message_view.js";
import { authorOf } from "../state/directory.js";
import { control } from "../state/network.js";

const KEY = "local_slack.tour";
const DONE_KEY = "local_slack.tour.dismissed";
const LABELS = { stop: "Stop it", kill: "Kill the app" };

const START = { step: -1, thread: null, since: "", status: null };

/** The place in a tour: `step` (-1 before the first), the `thread`, and its newest message (`since`) and `status` before the step. */
function stored() {
  try {
    return JSON.parse(sessionStorage.getItem(KEY)) ?? null;
  } catch {
    return null;
  }
}

/** A card that leads a person through steps in a real thread. The next step follows when the thread shows that one is done. */
export class Tour {
  #session;
  #tour;
  #at;
  #problem = "";
  #busy = false;
  #hasKilled = false;
  #goneAt = null;
  #awayMs = null;
  #shown = null;

  constructor(session) {
    this.#session = session;
    this.#tour = session.directory.tour;
    this.#at = stored() ?? { ...START, open: !narrow() && !localStorage.getItem(DONE_KEY) };
    this.element = h("aside", { class: "tour", testid: "tour", "aria-label": "Guided tour", hidden: true, onkeydown: (event) => this.#key(event) });
    this.update();
  }

  /** Begin anew, or close it. */
  toggle() {
    if (this.#at.open) this.#close();
    else this.#go({ ...START, open: true });
  }

  /** Look at the thread again, after any change. */
  update() {
    if (!this.#tour) return;
    this.#watchApp();
    const step = this.#step;
    if (this.#at.open && step && this.#isDone(step)) this.#next();
    else this.#draw();
  }

  get #step() {
    return this.#tour.steps[this.#at.step] ?? null;
  }

  /** The thread that is open, else that of the first step. */
  get #thread() {
    return this.#session.threadTs ?? this.#at.thread;
  }

  get #messages() {
    const { channelId } = this.#session;
    return channelId && this.#thread ? this.#session.conversation(channelId).thread(this.#thread) : [];
  }

  get #status() {
    return this.#session.agents.of(this.#session.channelId, this.#thread)?.status;
  }

  #isDone({ until }) {
    if (until.status) {
      // It counts once it has become so: before a message, the agent may have the status already.
      if (this.#status !== until.status) this.#at.status = this.#status;
      return this.#status === until.status && this.#at.status !== until.status;
    }
    const { directory, me } = this.#session;
    const later = this.#messages.filter((message) => message.ts > this.#at.since);
    if (until.words) return later.some((message) => authorOf(message, directory).isApp && `${textOf(message)} ${message.text}`.includes(until.words));
    const isOfApp = (id) => directory.user(id)?.is_bot;
    return later.some((message) => message.user === me.id && message.reactions?.some((each) => each.name === until.reaction && each.users.some(isOfApp)));
  }

  /** Measure how long the app was away after a kill. */
  #watchApp() {
    if (!this.#hasKilled) return;
    const online = this.#session.directory.bots.some((bot) => bot.online);
    if (!online) this.#goneAt ??= performance.now();
    else if (this.#goneAt !== null) {
      this.#awayMs = performance.now() - this.#goneAt;
      this.#goneAt = null;
    }
  }

  #next() {
    const since = this.#messages.at(-1)?.ts ?? this.#at.since;
    this.#go({ ...this.#at, step: this.#at.step + 1, thread: this.#thread, since, status: this.#status });
  }

  #go(at) {
    this.#at = at;
    this.#problem = "";
    sessionStorage.setItem(KEY, JSON.stringify(at));
    this.#draw();
    if (at.open) announce(`${this.#heading}. ${this.#step?.text ?? ""}`);
  }

  #close() {
    localStorage.setItem(DONE_KEY, "1");
    this.#go({ ...START, open: false });
  }

  /** Do the step for the person. With both `say` and `do`, first comes the message that sets the agent to work. */
  async #act(step) {
    this.#busy = true;
    this.#problem = "";
    this.#draw();
    try {
      if (this.#doesNow(step)) await this.#interfere(step.do);
      else await this.#say(step);
    } catch (error) {
      this.#problem = error.message;
    }
    this.#busy = false;
    this.update();
  }

  #doesNow(step) {
    return Boolean(step.do) && (!step.say || this.#status === "processing");
  }

  async #say({ say, channel: name }) {
    const session = this.#session;
    const channel = name ? session.directory.channelNamed(name) : session.channel;
    if (!channel) throw new Error(`There is no channel #${name}, which the tour names.`);
    const threadTs = name ? null : this.#thread;
    if (session.channelId !== channel.id || (threadTs && session.threadTs !== threadTs)) await session.open(channel.id, threadTs);
    const ts = await session.send(channel.id, say, { threadTs });
    if (name) await session.open(channel.id, ts);
  }

  #interfere(what) {
    if (what === "stop") return this.#session.stopSession(this.#session.channelId, this.#thread);
    this.#hasKilled = true;
    return control.switchOn({ app: "kill" });
  }

  get #heading() {
    const { steps, title } = this.#tour;
    if (this.#at.step < 0) return title;
    return this.#step ? `${this.#at.step + 1} of ${steps.length}: ${this.#step.title}` : "That was the tour";
  }

  #draw() {
    const key = JSON.stringify([this.#at, this.#problem, this.#busy, this.#note, this.#step && this.#doesNow(this.#step)]);
    if (key === this.#shown) return;
    this.#shown = key;
    const hadFocus = this.element.contains(document.activeElement);
    this.element.hidden = !this.#at.open;
    const words = this.#at.step < 0 ? this.#tour.text : (this.#step?.text ?? this.#tour.end);
    this.element.replaceChildren(
      h("header", {}, h("h2", {}, this.#heading), iconButton("close", "End the tour", () => this.#close(), { "data-testid": "tour-close" })),
      h("p", {}, words),
      this.#note ? h("p", { class: "tour-note", role: "status", testid: "tour-note" }, this.#note) : "",
      this.#problem ? h("p", { class: "problem", role: "alert" }, this.#problem) : "",
      h("div", { class: "tour-buttons" }, this.#buttons()),
    );
    if (hadFocus) this.element.querySelector(".strong-button")?.focus();
  }

  get #note() {
    if (this.#goneAt !== null) return "The app is not connected.";
    return this.#awayMs === null ? "" : `The app was away for ${(this.#awayMs / 1000).toFixed(1)} seconds.`;
  }

  #buttons() {
    const step = this.#step;
    const strong = (label, onclick) => h("button", { type: "button", class: "strong-button", testid: "tour-go", disabled: this.#busy || this.#goneAt !== null, onclick }, label);
    if (this.#at.step < 0) return [strong("Begin", () => this.#next()), h("button", { type: "button", class: "plain-button", testid: "tour-later", onclick: () => this.#close() }, "Not now")];
    if (!step) return [strong("Close", () => this.#close())];
    const label = this.#doesNow(step) ? LABELS[step.do] : `Send “${step.say}”`;
    const act = step.say || step.do ? strong(label, () => this.#act(step)) : "";
    return [act, h("button", { type: "button", class: "plain-button", testid: "tour-skip", onclick: () => this.#next() }, "Skip")];
  }

  #key(event) {
    if (event.key !== "Escape") return;
    event.stopPropagation();
    this.#close();
  }
}
