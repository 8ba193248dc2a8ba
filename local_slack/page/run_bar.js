import { hasAction } from "./blocks.js";
import { authorOf, displayName } from "./directory.js";
import { h } from "./dom.js";
import { textOf } from "./message_view.js";

const WORKING = "hourglass_flowing_sand";
const STOP = "x";
const STOP_ACTION = "stop";
const STATUS = /^\s*(?:⚙|:gear:)/u;

/**
 * The run that is on among the messages of one thread or direct conversation, or null: `bot`, `start` (the message with
 * the bot's hourglass), and `status`, null until it is posted. A conversation has one run at a time: the newest hourglass
 * counts, and a status from before it was left behind by another run.
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

/** The line above a composer: how to steer a bot, and while it works a button that stops it. */
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
   * `bot` is who would work here, null for nobody; `run` comes from `runIn`. Where the status has a Stop of its own,
   * or Slack shows one (`stoppable`), another one here would only ask which to press.
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
    this.button.title = `Reacts with ❌ to the ${run?.status ? "status message" : "message that it works on"}`;
    this.label.textContent = asked ? "Stop now" : "Stop";
    this.text.replaceChildren(...sentence(run?.bot ?? bot, Boolean(run)));
  }

  /** Where one's ❌ already stands; it may have come before the status. */
  get #asked() {
    if (!this.#run) return [];
    const places = [this.#run.start, this.#run.status].filter(Boolean);
    return places.filter(({ ts }) => this.#session.hasMyReaction(this.#channelId, ts, STOP));
  }

  /** The first ❌ asks the run to end, a second one ends it at once. */
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

function sentence(bot, on) {
  if (!bot) return [];
  const name = displayName(bot);
  if (!on) return [`While ${name} works you can just write on. Stop or ❌ on its status stops it.`];
  return [h("strong", {}, `${name} is working. `), "Just write on: it reads along."];
}
