import { h } from "../dom.js";
import { hasAction } from "./blocks.js";
import { textOf } from "./message_view.js";
import { authorOf, displayName } from "../state/directory.js";

const WORKING = "hourglass_flowing_sand";
const STOP = "x";
const STOP_ACTION = "stop";
const STATUS = /^\s*(?:⚙|:gear:)/u;

/**
 * The active run among the messages of one thread or direct conversation, or null: `bot`, `start` (the message with
 * the bot's hourglass), and `status`, null until it is posted. A conversation has one run at a time: the newest hourglass
 * counts, and an earlier status message belongs to another run.
 */
export function runIn(messages, directory) {
  const start = messages.findLast((message) => workerOn(message, directory)) ?? null;
  if (!start) return null;
  const bot = workerOn(start, directory);
  const isStatus = (message) => {
    const { user, hasPersona } = authorOf(message, directory);
    return message.ts > start.ts && user?.id === bot.id && !hasPersona && !message.is_ephemeral && STATUS.test(textOf(message));
  };
  return { bot, start, status: messages.findLast(isStatus) ?? null };
}

function workerOn(message, directory) {
  const working = message.reactions?.find((each) => each.name === WORKING);
  return working?.users.map((id) => directory.user(id)).find((user) => user?.is_bot) ?? null;
}

/** The line above a composer: a hint on steering, and a stop button while the bot works. */
export class RunBar {
  #session;
  #fail;
  #channelId = null;
  #run = null;
  #shown = null;

  constructor(session, fail) {
    this.#session = session;
    this.#fail = fail;
    this.text = h("span", {});
    this.label = h("span", {});
    this.button = h(
      "button",
      { type: "button", class: "stop-button", testid: "stop-run", onclick: () => this.#stop() },
      h("span", { class: "emoji", "aria-hidden": "true" }, "❌"),
      " ",
      this.label,
    );
    this.element = h("div", { class: "hint", testid: "run-bar", hidden: true }, this.text, this.button);
  }

  /**
   * `bot` is the bot of this place, or null; `run` comes from `runIn`. The button is hidden if the status has a Stop
   * button, or Slack shows one (`stoppable`).
   */
  update(channelId, bot, run, stoppable = false) {
    this.#channelId = channelId;
    this.#run = run;
    const asked = this.#asked.length > 0;
    const hasStop = stoppable || hasAction(run?.status, STOP_ACTION);
    const key = JSON.stringify([channelId, bot?.id, run?.start.ts, run?.status?.ts, asked, hasStop]);
    if (key === this.#shown) return;
    this.#shown = key;
    this.element.hidden = !bot && !run;
    this.element.classList.toggle("on", Boolean(run));
    this.button.hidden = !run || hasStop;
    this.button.title = `Reacts with ❌ to the ${run?.status ? "status message" : "message that started the run"}`;
    this.label.textContent = asked ? "Stop now" : "Stop";
    this.text.replaceChildren(...sentence(run?.bot ?? bot, Boolean(run)));
  }

  /** The message that has the person's ❌; it may be older than the status. */
  get #asked() {
    if (!this.#run) return [];
    const places = [this.#run.start, this.#run.status].filter(Boolean);
    return places.filter(({ ts }) => this.#session.hasMyReaction(this.#channelId, ts, STOP));
  }

  /** The first ❌ stops the run gracefully, a second one immediately. */
  async #stop() {
    if (!this.#run) return;
    const channelId = this.#channelId;
    const { ts } = this.#run.status ?? this.#run.start;
    const again = this.#asked.some((message) => message.ts === ts);
    try {
      if (again) await this.#session.react(channelId, ts, STOP, false);
      await this.#session.react(channelId, ts, STOP, true);
    } catch (error) {
      this.#fail(error);
    }
  }
}

/** The prompts that the app suggests, above a composer; a click sends one. */
export class PromptButtons {
  #send;
  #shown = "[]";

  constructor(send) {
    this.#send = send;
    this.element = h("div", { class: "prompts", testid: "suggested-prompts", role: "group", "aria-label": "Suggested prompts", hidden: true });
  }

  update(prompts = []) {
    const key = JSON.stringify(prompts);
    if (key === this.#shown) return;
    this.#shown = key;
    this.element.hidden = !prompts.length;
    const button = ({ title, message }) => h("button", { type: "button", class: "prompt", title: message, onclick: () => this.#send(message) }, title);
    this.element.replaceChildren(...prompts.map(button));
  }
}

function sentence(bot, on) {
  if (!bot) return [];
  const name = displayName(bot);
  if (!on) return [`While ${name} works, you can send it messages. Stop, or ❌ on its status, stops it.`];
  return [h("strong", {}, "The agent is working. "), "📨 marks messages that it has accepted, 👀 those that it has read."];
}
