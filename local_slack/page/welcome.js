import { userAvatar } from "./avatar.js";
import { displayName } from "./directory.js";
import { h, icon } from "./dom.js";

const FIRST_TASK = "look through the notes in the workspace and suggest improvements";

/** How a conversation begins. While it is empty, with a first message that a click puts into the composer. */
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
  if (partner?.is_bot) return `This is your direct conversation with ${displayName(partner)}. Write what you want done; no mention is needed.`;
  if (partner) return `This is the beginning of your conversation with ${displayName(partner)}.`;
  if (!bot) return `This is the beginning of #${channel.name}.`;
  return `Give ${displayName(bot)} something to do by mentioning @${bot.name}. It answers in a thread.`;
}

function suggestion(bot, partner, suggest) {
  const direct = FIRST_TASK[0].toUpperCase() + FIRST_TASK.slice(1);
  const text = partner ? direct : `@${bot.name} ${FIRST_TASK}`;
  const shown = partner ? [direct] : [h("span", { class: "mention" }, `@${bot.name}`), ` ${FIRST_TASK}`];
  return h(
    "button",
    { type: "button", class: "suggestion", testid: "suggestion", onclick: () => suggest(text) },
    h("span", { class: "suggestion-label" }, "Try this first"),
    h("span", { class: "suggestion-text" }, shown),
  );
}

function offlineNote(bot) {
  if (bot.online) return null;
  return h("p", { class: "offline-note" }, `${displayName(bot)} is not connected at the moment. Start the bot service and it will appear here.`);
}

function steps(bot, isDirect) {
  const name = displayName(bot);
  const there = isDirect ? "right here" : "in the thread";
  return h(
    "ul",
    { class: "steps" },
    step("⏳", `${name} is on it`, `A status message ${there} shows what it is doing.`),
    step("📨", "Write on while it works", `Whatever you add ${there}, it takes into account as it goes.`),
    step("❌", "Stop it", "Press Stop under its status message, or react to it with ❌."),
  );
}

const step = (sign, title, text) => h("li", {}, h("span", { class: "emoji", "aria-hidden": "true" }, sign), h("div", {}, h("strong", {}, title), h("span", {}, text)));
