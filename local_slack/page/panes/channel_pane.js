import { h, icon, iconButton } from "../dom.js";
import { presenceDot, userAvatar } from "../messages/avatar.js";
import { MessageList } from "../messages/message_list.js";
import { PromptButtons, RunBar, runIn } from "../messages/run_bar.js";
import { Composer } from "./composer.js";
import { HomeTab } from "./views.js";
import { isReply } from "../state/conversation.js";
import { authorOf, displayName } from "../state/directory.js";
import { worksInThread } from "../state/session.js";
import { fence } from "../text/mrkdwn.js";

const OFFLINE_DELAY_MS = 1200;
const FIRST_TASK = "look through the notes in the workspace and suggest improvements";

/** The beginning of a conversation. While the bot is not involved, a click puts a suggested message into the composer. */
function welcome(channel, directory, isNew, suggest) {
  const partner = directory.partnerOf(channel);
  const bot = directory.botIn(channel);
  const picture = partner ? userAvatar(partner, "large") : h("span", { class: "welcome-mark" }, icon("hash"));
  const title = partner ? displayName(partner) : `Welcome to #${channel.name}`;
  return h(
    "section",
    { class: `welcome ${isNew ? "new" : ""}`, "aria-label": "Beginning of the conversation" },
    picture,
    h("h3", {}, title),
    h("p", {}, introduction(channel, partner, bot)),
    isNew && bot ? [suggestion(bot, partner, suggest), steps(bot, Boolean(partner))] : null,
  );
}

function introduction(channel, partner, bot) {
  if (partner?.is_bot) return `This is your direct conversation with ${displayName(partner)}. Write a task; no mention is needed.`;
  if (partner) return `This is the beginning of your conversation with ${displayName(partner)}.`;
  if (!bot) return `This is the beginning of #${channel.name}.`;
  return `Mention @${bot.name} to give ${displayName(bot)} a task. It answers in a thread.`;
}

function suggestion(bot, partner, suggest) {
  const direct = FIRST_TASK[0].toUpperCase() + FIRST_TASK.slice(1);
  const text = partner ? direct : `@${bot.name} ${FIRST_TASK}`;
  const shown = partner ? [direct] : [h("span", { class: "mention" }, `@${bot.name}`), ` ${FIRST_TASK}`];
  return h(
    "button",
    { type: "button", class: "suggestion", testid: "suggestion", onclick: () => suggest(text) },
    h("span", { class: "suggestion-label" }, "Try this"),
    h("span", { class: "suggestion-text" }, shown),
  );
}

function steps(bot, isDirect) {
  const name = displayName(bot);
  const there = isDirect ? "in its thread" : "in the thread";
  return h(
    "ul",
    { class: "steps" },
    step("⏳", `${name} is working`, `A status message ${there} shows what it is doing.`),
    step("📨", "Write while it works", `Messages that you send ${there} reach it during its work.`),
    step("❌", "Stop it", "Press Stop under its status message, or react to it with ❌."),
  );
}

const step = (sign, title, text) => h("li", {}, h("span", { class: "emoji", "aria-hidden": "true" }, sign), h("div", {}, h("strong", {}, title), h("span", {}, text)));

/** How to connect a bot. A bot that only reconnects is back before it appears. */
class OfflineNote {
  #timer = null;

  constructor(command) {
    this.element = h("div", { class: "text offline-note", testid: "offline-note", hidden: true }, h("p", {}, "No bot is connected. Start one with"), fence(command));
  }

  update(isOffline) {
    if (isOffline) {
      this.#timer ??= setTimeout(() => { this.element.hidden = false; }, OFFLINE_DELAY_MS);
      return;
    }
    clearTimeout(this.#timer);
    this.#timer = null;
    this.element.hidden = true;
  }
}

/** The open conversation: header, messages, composer. */
export class ChannelPane {
  #session;
  #headerKey = null;
  #welcomeKey = null;
  #loadingOlder = false;

  constructor(session, { onBack, onSent, become }) {
    this.#session = session;
    this.list = new MessageList(session, { label: "Messages", onTop: () => this.#older() });
    this.header = h("header", { class: "pane-header" }, iconButton("back", "Back to conversations", onBack, { class: "icon-button back" }));
    const send = async (typed, files) => onSent(await session.send(session.channelId, typed, { files }));
    this.composer = new Composer(session, {
      label: "Message",
      become,
      onSubmit: send,
      onArrowUp: () => this.list.editLastOwn(),
    });
    this.offline = new OfflineNote(session.directory.startCommand);
    this.runBar = new RunBar(session, (error) => this.fail(error));
    this.prompts = new PromptButtons((text) => send(text, []).catch((error) => this.fail(error)));
    this.problem = h("p", { class: "problem", role: "alert", hidden: true });
    this.home = new HomeTab(session, (error) => this.fail(error));
    this.foot = h("div", { class: "pane-composer" }, this.offline.element, this.prompts.element, this.runBar.element, this.composer.element);
    this.element = h(
      "section",
      { class: "pane channel-pane", testid: "channel-pane", "aria-label": "Conversation" },
      this.header,
      this.home.tabs,
      this.problem,
      this.home.element,
      this.list.element,
      this.foot,
    );
    this.composer.acceptDrops(this.element);
  }

  /** Another conversation was opened: show its draft. */
  moved() {
    const { channel, directory } = this.#session;
    if (!channel) return;
    const partner = directory.partnerOf(channel);
    this.composer.open(channel.id);
    this.composer.placeholder = partner ? `Message ${displayName(partner)}` : `Message #${channel.name}`;
    this.element.setAttribute("aria-label", partner ? `Conversation with ${displayName(partner)}` : `Channel ${channel.name}`);
  }

  update() {
    const { channel } = this.#session;
    if (!channel) return;
    const conversation = this.#session.conversation(channel.id);
    const messages = conversation.timeline();
    this.#showHeader(channel);
    this.list.element.hidden = this.foot.hidden = this.home.update(channel);
    this.offline.update(this.#session.directory.botIn(channel)?.online === false);
    this.#showWelcome(channel, conversation.loaded && !conversation.cursor, isNew(channel, messages, this.#session.directory));
    const run = this.#runOf(channel, messages);
    this.prompts.update(this.#session.agents.of(channel.id, "")?.prompts);
    this.runBar.update(channel.id, this.#botOf(channel, messages), run);
    this.list.show(channel.id, channel.id, messages, run?.status?.ts);
  }

  fail(error) {
    this.problem.textContent = error?.message ?? "";
    this.problem.hidden = !error;
  }

  suggest(text) {
    this.composer.value = text;
    this.composer.focus();
  }

  /** A bot works in the conversation itself only in some direct messages; in others and in channels it works in threads. */
  #runOf(channel, messages) {
    if (!channel.is_im) return null;
    const { directory } = this.#session;
    const isOfChannel = (message) => !isReply(message) && !worksInThread(this.#session, channel.id, message);
    return runIn(messages.filter(isOfChannel), directory);
  }

  /** Null while the conversation is empty: the welcome text shows the same hint. */
  #botOf(channel, messages) {
    const partner = this.#session.directory.partnerOf(channel);
    return partner?.is_bot && messages.length ? partner : null;
  }

  async #older() {
    if (this.#loadingOlder) return;
    this.#loadingOlder = true;
    try {
      await this.#session.loadOlder(this.#session.channelId);
    } catch (error) {
      this.fail(error);
    } finally {
      this.#loadingOlder = false;
    }
  }

  #showHeader(channel) {
    const { directory } = this.#session;
    const partner = directory.partnerOf(channel);
    const members = (channel.members ?? []).map((id) => directory.user(id)).filter(Boolean);
    const key = JSON.stringify([channel, partner?.online, members.length]);
    if (key === this.#headerKey) return;
    this.#headerKey = key;
    const title = partner ? [userAvatar(partner, "small"), displayName(partner), presenceDot(partner)] : [icon("hash"), channel.name];
    const about = partner?.is_bot ? (partner.online ? "App · online" : "App · not connected") : "";
    while (this.header.firstChild !== this.header.lastChild) this.header.lastChild.remove();
    this.header.append(
      h("div", { class: "pane-title" }, h("h2", {}, title), h("p", { class: "topic", title: about }, about)),
      partner ? "" : memberFaces(members),
    );
  }

  #showWelcome(channel, isWhole, isFresh) {
    const { directory } = this.#session;
    const key = isWhole ? JSON.stringify([channel.id, isFresh, directory.bots.map((bot) => bot.online)]) : "";
    if (key === this.#welcomeKey) return;
    this.#welcomeKey = key;
    this.list.before.replaceChildren(...(isWhole ? [welcome(channel, directory, isFresh, (text) => this.suggest(text))] : []));
  }
}

/** Whether no message is from, to, or answered by the bot. */
function isNew(channel, messages, directory) {
  const { id } = directory.botIn(channel) ?? {};
  const isOfBot = (message) =>
    authorOf(message, directory).user?.id === id || message.text?.includes(`<@${id}>`) || message.reply_users?.includes(id);
  return channel.is_im ? !messages.length : !messages.some(isOfBot);
}

function memberFaces(members) {
  const names = members.map(displayName).join(", ");
  const faces = members.slice(0, 4).map((user) => userAvatar(user, "small"));
  const label = `${members.length} members: ${names}`;
  return h("div", { class: "members", role: "img", "aria-label": label, title: names }, h("span", { class: "faces" }, faces), String(members.length));
}
