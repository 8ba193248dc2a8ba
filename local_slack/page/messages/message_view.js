import { calmMotion, h, icon } from "../dom.js";
import { authorAvatar, kindTag, userAvatar } from "./avatar.js";
import { attachmentViews } from "./attachment_view.js";
import { BlocksView } from "./blocks.js";
import { MessageActions } from "./message_actions.js";
import { authorOf, displayName } from "../state/directory.js";
import { ago, fullTime, timeOfDay } from "../text/clock.js";
import { emojiFor } from "../text/emoji.js";
import { fence, render } from "../text/mrkdwn.js";
import { fileSize } from "../text/size.js";

/** One file of a message, with a preview of an image; a click downloads it. */
function fileRow(file, session) {
  if (file.mode === "tombstone") return h("span", { class: "unknown-block" }, "This file was deleted.");
  const name = file.title || file.name || "File";
  const detail = [name === file.name ? null : file.name, file.pretty_type, fileSize(file.size)].filter(Boolean).join(" · ");
  const isImage = file.mimetype?.startsWith("image/");
  if (file.mode === "snippet" && file.preview) return h("div", { class: "text snippet", testid: "snippet" }, fileLink(file, name, detail, false, session), fence(file.preview));
  return fileLink(file, name, detail, isImage, session);
}

function fileLink(file, name, detail, isImage, session) {
  return h(
    "a",
    { class: isImage ? "file image" : "file", testid: "file", href: session.fileUrl(file), download: file.name ?? "", title: `Download ${file.name ?? name}` },
    isImage && h("img", { src: session.fileUrl(file), alt: file.alt_txt ?? "" }),
    icon(isImage ? "image" : "file"),
    h("span", { class: "file-name" }, h("strong", {}, name), h("small", {}, detail)),
    icon("download"),
  );
}

/** The reactions of a message; each is a button that adds or removes the person's own. */
class Reactions {
  #session;
  #channelId;
  #onError;
  #chips = new Map();
  #message = null;

  constructor(session, channelId, onError) {
    this.#session = session;
    this.#channelId = channelId;
    this.#onError = onError;
    this.element = h("div", { class: "reactions", role: "group", "aria-label": "Reactions" });
  }

  /** `live` lets new ones pop in. */
  update(message, live) {
    this.#message = message;
    const reactions = message.reactions ?? [];
    const names = new Set(reactions.map((each) => each.name));
    for (const [name, chip] of this.#chips) {
      if (names.has(name)) continue;
      chip.remove();
      this.#chips.delete(name);
    }
    for (const reaction of reactions) this.#show(reaction, live);
    this.element.hidden = reactions.length === 0;
  }

  async toggle(name) {
    try {
      await this.#session.toggleReaction(this.#channelId, this.#message.ts, name);
    } catch (error) {
      this.#onError(error);
    }
  }

  #show(reaction, live) {
    const { name, users } = reaction;
    const count = String(reaction.count ?? users.length);
    let chip = this.#chips.get(name);
    if (!chip) {
      chip = this.#newChip(name);
      this.#chips.set(name, chip);
      this.element.append(chip);
      if (live) pop(chip);
    }
    const who = users.map((id) => displayName(this.#session.directory.user(id))).join(", ");
    chip.dataset.count = count;
    chip.setAttribute("aria-pressed", String(users.includes(this.#session.me.id)));
    chip.setAttribute("aria-label", `${name}, ${count}: ${who}`);
    chip.title = `${who} reacted with :${name}:`;
    chip.lastChild.textContent = count;
  }

  #newChip(name) {
    return h(
      "button",
      { type: "button", class: "reaction", testid: `reaction-${name}`, onclick: () => this.toggle(name) },
      h("span", { class: "emoji" }, emojiFor(name) ?? `:${name}:`),
      h("span", { class: "count" }),
    );
  }
}

function pop(chip) {
  if (calmMotion()) return;
  chip.animate([{ transform: "scale(0.5)", opacity: 0 }, { transform: "scale(1.12)", opacity: 1, offset: 0.7 }, { transform: "scale(1)" }], {
    duration: 240,
    easing: "ease-out",
  });
}

/** `text`, or the text of the blocks or of the attachments if it is empty. */
export function textOf(message) {
  const [first] = message.attachments ?? [];
  if (!message.text && !message.blocks) return first?.fallback ?? first?.title ?? first?.text ?? "";
  if (message.text) return message.text;
  const texts = message.blocks.map((block) => block.text?.text ?? block.elements?.map?.((each) => each.text?.text ?? each.text ?? "").join(" "));
  return texts.filter((text) => typeof text === "string" && text).join("\n\n");
}

/** One message on screen. `update` changes only differing parts in place, to avoid flicker. */
export class MessageView {
  #session;
  #inThread;
  #message = null;
  #shownAuthor = null;
  #shownText = null;
  #shownSummary = null;
  #blocks;

  constructor(session, channelId, inThread) {
    this.#session = session;
    this.#inThread = inThread;
    this.text = h("div", { class: "text", testid: "message-text" });
    this.attachments = h("div", { class: "message-attachments text" });
    this.files = h("div", { class: "files" });
    this.gutter = h("div", { class: "gutter" });
    this.heading = h("div", { class: "heading" });
    this.below = h("div", { class: "below" });
    this.reactions = new Reactions(session, channelId, (error) => this.actions.fail(error));
    this.body = h("div", { class: "body" }, this.heading, this.text, this.attachments, this.files, this.reactions.element, this.below);
    this.element = h("li", { class: "message", testid: "message", tabindex: "-1" }, this.gutter, this.body);
    this.actions = new MessageActions(session, channelId, this, inThread);
    this.#blocks = new BlocksView(session, (action, control) => this.#press(channelId, action, control));
  }

  get message() {
    return this.#message;
  }

  /** `compact` continues the author's previous message; `atWork` marks the status of an active run. */
  update(message, { compact, atWork }) {
    const first = this.#message === null;
    const { element } = this;
    element.classList.toggle("compact", compact);
    element.classList.toggle("at-work", atWork);
    this.#showSummary(message);
    if (this.#message === message) return;
    this.#message = message;
    const author = authorOf(message, this.#session.directory);
    element.dataset.ts = message.ts;
    element.dataset.author = author.name;
    element.classList.toggle("tombstone", message.subtype === "tombstone");
    element.classList.toggle("ephemeral", Boolean(message.is_ephemeral));
    if (author.key !== this.#shownAuthor) this.#showAuthor(message, author);
    this.#showText(message, first);
    this.reactions.update(message, !first);
    this.actions.update(message, author);
  }

  #showAuthor(message, author) {
    this.#shownAuthor = author.key;
    const time = h("time", { title: fullTime(message.ts) }, timeOfDay(message.ts));
    this.gutter.replaceChildren(authorAvatar(author), time.cloneNode(true));
    this.heading.replaceChildren(
      h("span", { class: "author" }, author.name),
      kindTag(author.user, author.isApp) ?? "",
      time,
      message.is_ephemeral ? h("span", { class: "note" }, "Only visible to you") : "",
      message.subtype === "thread_broadcast" && !this.#inThread ? h("span", { class: "note" }, "replied in a thread") : "",
    );
  }

  #showText(message, first) {
    const text = message.subtype === "tombstone" ? "This message was deleted." : (message.text ?? "");
    const blocks = message.subtype === "tombstone" ? [] : (message.blocks ?? []);
    const key = JSON.stringify([text, Boolean(message.edited), blocks, message.attachments, message.files]);
    if (key === this.#shownText) return;
    this.#shownText = key;
    const fresh = blocks.length ? this.#showBlocks(blocks) : this.#showPlain(message, text);
    this.attachments.replaceChildren(...attachmentViews(message.attachments, this.#session));
    this.files.replaceChildren(...(message.files ?? []).map((file) => fileRow(file, this.#session)));
    if (!first && !calmMotion()) for (const each of fresh) each.animate([{ opacity: 0.6 }, { opacity: 1 }], { duration: 320, easing: "ease-out" });
  }

  #showBlocks(blocks) {
    if (this.#blocks.element.parentElement !== this.text) this.text.replaceChildren(this.#blocks.element);
    this.text.classList.remove("jumbo");
    return this.#blocks.update(blocks);
  }

  #showPlain(message, text) {
    this.text.replaceChildren(...render(text, this.#session.directory));
    this.text.classList.toggle("jumbo", isOnlyEmoji(this.text));
    if (message.edited && !authorOf(message, this.#session.directory).isApp) markEdited(this.text);
    return [this.text];
  }

  /** Send the action to the app; the control looks pressed until the app responds. */
  async #press(channelId, action, control) {
    if (control.ariaBusy === "true") return;
    control.ariaBusy = "true";
    this.actions.forgetFailure();
    try {
      await this.#session.press(channelId, this.#message.ts, action);
    } catch (error) {
      this.actions.fail(error);
    } finally {
      control.ariaBusy = null;
    }
  }

  /** "3 replies · last reply 2 min ago" under a thread's root, in the channel. */
  #showSummary(message) {
    const count = this.#inThread ? 0 : (message.reply_count ?? 0);
    const when = count && message.latest_reply ? ago(message.latest_reply) : "";
    const users = (message.reply_users ?? []).slice(0, 4);
    const key = count ? [count, when, ...users].join() : "";
    if (key === this.#shownSummary) return;
    this.#shownSummary = key;
    this.below.replaceChildren(...(count ? [this.#summary(message.ts, count, when, users)] : []));
  }

  #summary(ts, count, when, users) {
    const open = () => this.#session.openThread(ts);
    return h(
      "button",
      { type: "button", class: "thread-summary", testid: "thread-summary", onclick: open },
      h("span", { class: "faces" }, users.map((id) => userAvatar(this.#session.directory.user(id), "small"))),
      h("strong", {}, count === 1 ? "1 reply" : `${count} replies`),
      h("span", { class: "when" }, when ? `last reply ${when}` : ""),
    );
  }
}

/** Only messages of people get the mark: status messages are edited all the time. */
function markEdited(text) {
  const line = text.querySelector(":scope > p:last-child") ?? text;
  const last = line.lastChild;
  if (last?.nodeType === Node.TEXT_NODE) last.textContent = last.textContent.trimEnd();
  line.append(h("span", { class: "edited", title: "This message was edited" }, " (edited)"));
}

function isOnlyEmoji(element) {
  if (!element.querySelector(".emoji") || element.querySelectorAll(".emoji").length > 8) return false;
  const rest = element.cloneNode(true);
  for (const emoji of rest.querySelectorAll(".emoji")) emoji.remove();
  return !rest.textContent.trim() && !rest.querySelector("code, pre, a, .mention");
}
