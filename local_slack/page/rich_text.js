import { fullTime } from "./clock.js";
import { h } from "./dom.js";
import { channelMention, emoji, fence, link, userMention } from "./mrkdwn.js";

const LIST_DEPTH = 8;

/** The elements of a `rich_text` block as DOM nodes. */
export const richText = (elements, directory) => elements.map((element) => part(element, directory));

function part(element, directory) {
  const { type, elements = [] } = element;
  switch (type) {
    case "rich_text_section": return h("p", { class: "line" }, inline(elements, directory));
    case "rich_text_quote": return h("blockquote", { class: "line" }, inline(elements, directory));
    case "rich_text_preformatted": return fence(elements.map((each) => each.text ?? each.url ?? "").join(""));
    case "rich_text_list": return list(element, directory);
    default: return h("p", { class: "unknown-block" }, `Unsupported element: ${type}`);
  }
}

function list({ elements = [], style, indent = 0, offset = 0 }, directory) {
  const items = elements.map((each) => h("li", {}, inline(each.elements ?? [], directory)));
  const depth = Math.min(Number(indent) || 0, LIST_DEPTH);
  return style === "ordered" ? h("ol", { start: Number(offset) + 1, class: `depth-${depth}` }, items) : h("ul", { class: `depth-${depth}` }, items);
}

const inline = (elements, directory) => elements.map((each) => styled(leaf(each, directory), each.style ?? {}));

function leaf(element, directory) {
  switch (element.type) {
    case "text": return element.text ?? "";
    case "link": return link(String(element.url), element.text ?? String(element.url));
    case "emoji": return emoji(String(element.name)) ?? `:${element.name}:`;
    case "user": return userMention(element.user_id, null, directory);
    case "channel": return channelMention(element.channel_id, null, directory);
    case "usergroup": return h("span", { class: "mention everybody" }, `@${element.usergroup_id}`);
    case "broadcast": return h("span", { class: "mention everybody" }, `@${element.range}`);
    case "date": return element.fallback ?? fullTime(String(element.timestamp));
    case "color": return h("code", {}, element.value);
    default: return h("span", { class: "unknown-block" }, `Unsupported element: ${element.type}`);
  }
}

const TAGS = { bold: "strong", italic: "em", strike: "s", underline: "u", code: "code" };

function styled(node, style) {
  return Object.keys(TAGS).reduce((inner, name) => (style[name] ? h(TAGS[name], {}, inner) : inner), node);
}
