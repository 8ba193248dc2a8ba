import { h } from "../dom.js";
import { BlocksView } from "./blocks.js";
import { fullTime } from "../text/clock.js";
import { link, plainText, render } from "../text/mrkdwn.js";

const COLORS = { good: "2eb67d", warning: "ecb22e", danger: "e01e5a" };
const DEPTH = 3;

/** The attachments of a message: alerts of other apps with a bar of their colour, and forwarded messages. */
export function attachmentViews(attachments, session, depth = 0) {
  const objects = Array.isArray(attachments) ? attachments.filter((each) => each && typeof each === "object") : [];
  return depth === DEPTH ? [] : objects.map((each) => attachmentView(each, session, depth));
}

function attachmentView(attachment, session, depth) {
  const { directory } = session;
  const { author_name: author, pretext, title, text, fields, footer, fallback, ts } = attachment;
  const inner = list(attachment.message_blocks).map((each) => each?.message ?? {});
  // As in the message itself, the text of a person has the markup; the blocks that the workspace adds have none.
  const isTyped = text && attachment.is_share && !directory.user(attachment.author_id)?.is_bot;
  const blocks = isTyped ? [] : [attachment, ...inner].flatMap((each) => list(each.blocks));
  const nested = inner.flatMap((each) => attachmentViews(each.attachments, session, depth + 1));
  const content = [
    author && h("div", { class: "attachment-author" }, plainText(String(author))),
    title && h("div", { class: "attachment-title" }, attachment.title_link ? link(String(attachment.title_link), String(title)) : plainText(String(title))),
    blocks.length ? blocksOf(blocks, session) : text && h("div", {}, render(String(text), directory)),
    list(fields).length && h("div", { class: "fields" }, list(fields).map((each) => field(each, directory))),
    attachment.image_url && h("div", {}, link(String(attachment.image_url), "Open the picture")),
    ...nested,
    list(attachment.files).length && h("div", { class: "unknown-block" }, list(attachment.files).map((file) => file.name ?? file.id).join(", ")),
  ].filter(Boolean);
  if (!content.length) content.push(h("div", {}, plainText(String(fallback ?? ""))));
  const end = [footer && String(footer), ts && fullTime(String(ts))].filter(Boolean).join(" · ");
  const bar = h("div", { class: "attachment", testid: attachment.is_share ? "forward" : "attachment", style: barColor(attachment.color) }, content, end && h("div", { class: "attachment-footer" }, end));
  return h("div", {}, pretext && h("div", {}, render(String(pretext), directory)), bar);
}

const list = (value) => (Array.isArray(value) ? value : []);

function blocksOf(blocks, session) {
  const view = new BlocksView(session, () => {});
  view.update(blocks);
  return view.element;
}

function field({ title, value, short }, directory) {
  return h("div", { class: short ? "" : "wide" }, title && h("strong", {}, plainText(String(title))), h("div", {}, render(String(value ?? ""), directory)));
}

/** A colour is one of Slack's three words, or a hexadecimal number. */
function barColor(color) {
  const [, digits] = /^#?([0-9a-f]{3,8})$/i.exec(COLORS[color] ?? color ?? "") ?? [];
  return digits ? `--bar:#${digits}` : null;
}
