import { Composer } from "./composer.js";
import { authorOf, displayName } from "./directory.js";
import { h, iconButton } from "./dom.js";
import { Drafts } from "./drafts.js";
import { MessageList } from "./message_list.js";

const WORKING = "hourglass_flowing_sand";
const STOP = "x";

/** One thread beside its channel: root, replies, a hint on how to steer, and a composer of its own. */
export class ThreadPane {
  #session;
  #hintKey = null;

  constructor(session, { onClose }) {
    this.#session = session;
    this.list = new MessageList(session, { inThread: true, label: "Thread" });
    this.hint = h("div", { class: "hint", hidden: true });
    this.drafts = new Drafts(session.me.id);
    this.place = h("p", { class: "topic" });
    this.problem = h("p", { class: "problem", role: "alert", hidden: true });
    this.composer = new Composer(session, {
      label: "Reply",
      onSubmit: (typed) => session.send(session.channelId, typed, session.threadTs),
      onArrowUp: () => this.list.editLastOwn(),
      onChange: (text) => session.threadTs && this.drafts?.keep(session.threadTs, text),
    });
    this.element = h(
      "aside",
      { class: "pane thread-pane", testid: "thread-pane", "aria-label": "Thread", hidden: true },
      this.#header(onClose),
      this.problem,
      this.list.element,
      h("div", { class: "pane-composer" }, this.hint, this.composer.element),
    );
  }

  get isIdle() {
    return !this.#session.threadTs || !this.composer.value.trim();
  }

  moved() {
    const { threadTs, channel, directory } = this.#session;
    this.element.hidden = !threadTs;
    if (!threadTs || !channel) return;
    const partner = directory.partnerOf(channel);
    this.place.textContent = partner ? displayName(partner) : `#${channel.name}`;
    this.composer.value = this.drafts.of(threadTs);
    this.composer.placeholder = "Reply in the thread";
    this.composer.fit();
    this.fail(null);
  }

  update() {
    const { channelId, threadTs } = this.#session;
    if (!threadTs) return;
    const messages = this.#session.conversation(channelId).thread(threadTs);
    const work = this.#workIn(messages);
    this.#showHint(work);
    this.list.show(threadTs, channelId, messages, work.on ? work.status?.ts : null);
  }

  fail(error) {
    this.problem.textContent = error?.message ?? "";
    this.problem.hidden = !error;
  }

  #header(onClose) {
    return h(
      "header",
      { class: "pane-header" },
      iconButton("back", "Back to the channel", onClose, { class: "icon-button back" }),
      h("div", { class: "pane-title" }, h("h2", {}, "Thread"), this.place),
      iconButton("close", "Close thread (Esc)", onClose, { "data-testid": "close-thread", class: "icon-button close" }),
    );
  }

  /** A bot is at work while its hourglass stands on a message; its status is the last reply under its own name. */
  #workIn(messages) {
    const { directory } = this.#session;
    const isBot = (id) => Boolean(directory.user(id)?.is_bot);
    const on = messages.some((message) => message.reactions?.some((each) => each.name === WORKING && each.users.some(isBot)));
    const authors = messages.map((message) => ({ message, author: authorOf(message, directory) }));
    const own = authors.slice(1).filter(({ author }) => author.user?.is_bot && !author.hasPersona);
    const mentioned = directory.bots.find((bot) => messages[0]?.text?.includes(`<@${bot.id}>`));
    const bot = authors.find(({ author }) => author.user?.is_bot)?.author.user ?? mentioned ?? null;
    return { on, bot, status: own.at(-1)?.message ?? null };
  }

  #showHint({ on, bot, status }) {
    const asked = Boolean(on && status) && this.#session.hasMyReaction(this.#session.channelId, status.ts, STOP);
    const key = JSON.stringify([on, bot?.id, on && status?.ts, asked]);
    if (key === this.#hintKey) return;
    this.#hintKey = key;
    this.hint.hidden = !bot;
    this.hint.classList.toggle("on", on);
    if (!bot) return;
    const name = displayName(bot);
    const text = on
      ? h("span", {}, h("strong", {}, `${name} is working. `), "Just write on: it reads along.")
      : h("span", {}, `While ${name} works you can just write on. ❌ on its status stops it.`);
    this.hint.replaceChildren(text, on && status ? this.#stopButton(status, asked) : "");
  }

  /** The first ❌ asks the run to end, a second one ends it at once. */
  #stopButton({ ts }, asked) {
    const { channelId } = this.#session;
    const stop = async () => {
      try {
        if (asked) await this.#session.react(channelId, ts, STOP, false);
        await this.#session.react(channelId, ts, STOP, true);
      } catch (error) {
        this.fail(error);
      }
    };
    const props = { type: "button", class: "stop-button", testid: "stop-run", title: "Reacts with ❌ to the status message", onclick: stop };
    return h("button", props, h("span", { class: "emoji", "aria-hidden": "true" }, "❌"), asked ? " Stop now" : " Stop");
  }
}
