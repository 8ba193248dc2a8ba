import { h, icon, iconButton } from "../dom.js";
import { MessageList } from "../messages/message_list.js";
import { PromptButtons, RunBar, runIn } from "../messages/run_bar.js";
import { Composer } from "./composer.js";
import { isReply } from "../state/conversation.js";
import { authorOf, displayName } from "../state/directory.js";
import { canStop, worksInThread } from "../state/session.js";

const WORDS = { processing: "Working", suspended: "Waiting for you", active: "Ready", closed: "Closed" };

/** The state of an agent session in the header of its thread, and Slack's Stop button. */
class SessionChip {
  #shown = null;

  constructor(onStop) {
    this.state = h("span", { class: "session-state", testid: "session-state", role: "status" });
    this.button = h("button", { type: "button", class: "stop-button", testid: "stop-session", onclick: () => this.#stop(onStop) }, icon("stop"), "Stop");
    this.element = h("div", { class: "session-chip", testid: "session-chip", hidden: true }, this.state, this.button);
  }

  update(session) {
    const status = session?.status ?? "";
    if (status === this.#shown) return;
    this.#shown = status;
    this.element.hidden = !WORDS[status];
    this.element.dataset.status = status;
    this.state.textContent = WORDS[status] ?? "";
    this.button.hidden = !canStop(session);
  }

  async #stop(onStop) {
    if (this.button.ariaBusy === "true") return;
    this.button.ariaBusy = "true";
    await onStop();
    this.button.ariaBusy = null;
  }
}

/** One thread next to its channel: root, replies, a hint on steering, and a composer. */
export class ThreadPane {
  #session;

  constructor(session, { onClose, become }) {
    this.#session = session;
    this.list = new MessageList(session, { inThread: true, label: "Thread" });
    this.runBar = new RunBar(session, (error) => this.fail(error));
    const send = (typed, files) => session.send(session.channelId, typed, { files, threadTs: session.threadTs });
    this.prompts = new PromptButtons((text) => send(text, []).catch((error) => this.fail(error)));
    this.chip = new SessionChip(() => this.#stopSession());
    this.title = h("h2", { testid: "thread-title" }, "Thread");
    this.place = h("p", { class: "topic" });
    this.says = h("p", { class: "says", testid: "session-text", role: "status", hidden: true });
    this.problem = h("p", { class: "problem", role: "alert", hidden: true });
    this.composer = new Composer(session, {
      label: "Reply",
      become,
      onSubmit: send,
      onArrowUp: () => this.list.editLastOwn(),
    });
    this.element = h(
      "aside",
      { class: "pane thread-pane", testid: "thread-pane", "aria-label": "Thread", hidden: true },
      this.#header(onClose),
      this.problem,
      this.list.element,
      h("div", { class: "pane-composer" }, this.says, this.prompts.element, this.runBar.element, this.composer.element),
    );
    this.composer.acceptDrops(this.element);
  }

  get isIdle() {
    return !this.#session.threadTs || this.composer.isEmpty;
  }

  moved() {
    const { threadTs, channel, directory } = this.#session;
    this.element.hidden = !threadTs;
    if (!threadTs || !channel) return;
    const partner = directory.partnerOf(channel);
    this.place.textContent = partner ? displayName(partner) : `#${channel.name}`;
    this.composer.open(threadTs);
    this.composer.placeholder = "Reply in the thread";
    this.composer.fit();
    this.fail(null);
  }

  update() {
    const { channelId, threadTs } = this.#session;
    if (!threadTs) return;
    const messages = this.#session.conversation(channelId).thread(threadTs);
    const run = this.#runOf(messages);
    const agent = this.#session.agents.of(channelId, threadTs);
    const bot = this.#botOf(messages);
    this.#showAgent(agent, bot);
    this.prompts.update(messages.length > 1 ? [] : agent?.prompts);
    this.runBar.update(channelId, bot, run, canStop(agent));
    this.list.show(threadTs, channelId, messages, run?.status?.ts);
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
      h("div", { class: "pane-title" }, this.title, this.place),
      this.chip.element,
      iconButton("close", "Close thread (Esc)", onClose, { "data-testid": "close-thread", class: "icon-button close" }),
    );
  }

  #showAgent(agent, bot) {
    this.chip.update(agent);
    const title = agent?.title || "Thread";
    if (this.title.textContent !== title) this.title.textContent = title;
    this.title.title = title;
    this.title.parentElement.classList.toggle("named", Boolean(agent?.title));
    const says = agent?.text ? `${displayName(bot)} ${agent.text}` : "";
    if (this.says.textContent !== says) this.says.textContent = says;
    this.says.hidden = !says;
  }

  async #stopSession() {
    const { channelId, threadTs } = this.#session;
    try {
      await this.#session.stopSession(channelId, threadTs);
    } catch (error) {
      this.fail(error);
    }
  }

  /** The bot of this thread: a connected one that wrote in it, else the partner of the conversation or a bot that is mentioned. */
  #botOf(messages) {
    const { channel, directory } = this.#session;
    const partner = directory.partnerOf(channel);
    const wrote = messages.map((message) => authorOf(message, directory).user).find((user) => user?.is_bot && user.online);
    const isMentioned = (bot) => messages.some((message) => message.text?.includes(`<@${bot.id}>`));
    return wrote ?? directory.bots.find((bot) => bot === partner || isMentioned(bot)) ?? null;
  }

  /** In direct messages the root's run may belong to the conversation, not to the thread. */
  #runOf(messages) {
    const { channel, channelId, directory } = this.#session;
    const isOfThread = (message) => !channel?.is_im || isReply(message) || worksInThread(this.#session, channelId, message);
    return runIn(messages.filter(isOfThread), directory);
  }
}
