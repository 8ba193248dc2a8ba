import { userAvatar } from "./avatar.js";
import { displayName } from "./directory.js";
import { h, icon } from "./dom.js";

const FIRST_TASK = "look through the notes in the workspace and suggest improvements";

/** The beginning of a conversation. While it is empty, a click puts a suggested message into the composer. */
export function welcome(channel, directory, isEmpty, suggest) {
  const partner = directory.partnerOf(channel);
  const bot = partner ? (partner.is_bot ? partner : null) : directory.bots.find((each) => !channel.members?.length || channel.members.includes(each.id));
  const picture = partner ? userAvatar(partner, "large") : h("span", { class: "welcome-mark" }, icon("hash"));
  const title = partner ? displayName(partner) : `Welcome to #${channel.name}`;
  return h(
    "section",
    { class: `welcome ${isEmpty ? "empty" : ""}`, "aria-label": "Beginning of the conversation" },
    picture,
    h("h2", {}, title),
    h("p", {}, introduction(channel, partner, bot)),
    isEmpty && bot ? [suggestion(bot, partner, suggest), offlineNote(bot), steps(bot, Boolean(partner))] : null,
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

function offlineNote(bot) {
  if (bot.online) return null;
  return h("p", { class: "offline-note" }, `${displayName(bot)} is not connected. Start the bot service to connect it.`);
}

function steps(bot, isDirect) {
  const name = displayName(bot);
  const there = isDirect ? "here" : "in the thread";
  return h(
    "ul",
    { class: "steps" },
    step("⏳", `${name} is working`, `A status message ${there} shows what it is doing.`),
    step("📨", "Write while it works", `Messages that you send ${there} reach it during its work.`),
    step("❌", "Stop it", "Press Stop under its status message, or react to it with ❌."),
  );
}

const step = (sign, title, text) => h("li", {}, h("span", { class: "emoji", "aria-hidden": "true" }, sign), h("div", {}, h("strong", {}, title), h("span", {}, text)));
