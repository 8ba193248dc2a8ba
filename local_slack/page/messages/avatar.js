import { h } from "../dom.js";
import { displayName } from "../state/directory.js";
import { emojiFor } from "../text/emoji.js";

/** The picture of a message's author: the persona's emoji, else that of the account. */
export function authorAvatar(author, size = "") {
  const char = author.emoji && emojiFor(author.emoji);
  if (!char) return userAvatar(author.user, size, author.name);
  return h("span", { class: `avatar persona ${size}`, style: tint(author.user), "aria-hidden": "true" }, char);
}

export function userAvatar(user, size = "", name = displayName(user)) {
  const style = tint(user);
  if (user?.is_bot) return h("span", { class: `avatar bot ${size}`, style, "aria-hidden": "true" }, h("i", {}), h("i", {}));
  return h("span", { class: `avatar ${size}`, style, "aria-hidden": "true" }, name.slice(0, 1).toUpperCase());
}

/** Colours come from the workspace, with or without a leading `#`. */
function tint(user) {
  const [, digits] = /^#?([0-9a-f]{3,8})$/i.exec(user?.color ?? "") ?? [null, "7a8b85"];
  return `--tint:#${digits}`;
}

const KINDS = {
  guest: ["guest", "Guest of this workspace"],
  single_channel_guest: ["guest", "Guest of one channel"],
  external: ["external", "Person of another workspace"],
};

/** The mark next to the name of an app, a guest or a person of another workspace, or null. */
export function kindTag(user, isApp = user?.is_bot) {
  const [label, title] = isApp ? ["APP", null] : (KINDS[user?.kind] ?? []);
  return label ? h("span", { class: "tag", title }, label) : null;
}

export function presenceDot(user) {
  if (!user?.is_bot) return null;
  const label = user.online ? "online" : "not connected";
  return h("span", { class: `presence ${user.online ? "online" : ""}`, role: "img", "aria-label": label, title: label });
}
