import { h, icon } from "../dom.js";
import { element } from "./elements.js";
import { fullTime } from "../text/clock.js";
import { renderMarkdown, table } from "../text/markdown.js";
import { channelMention, emoji, fence, isText, link, plainText, plainWords, render, textNodes, userMention } from "../text/mrkdwn.js";

const LIST_DEPTH = 8;

/** The elements of a `rich_text` block as DOM nodes. */
const richText = (elements, directory) => elements.map((element) => richPart(element, directory));

function richPart(element, directory) {
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

/** An input with its label and hint. Its choices are sent at once only with `dispatch_action`. */
function input({ label, hint, optional, dispatch_action: isSent, element: each }, place) {
  const control = element(each, { ...place, label: plainWords(label), press: isSent ? place.press : null });
  return h(
    "div",
    { class: "block-input" },
    h("p", { class: "input-label" }, plainText(label.text), optional ? h("span", { class: "optional" }, " (optional)") : null),
    control,
    hint ? h("p", { class: "input-hint" }, plainText(hint.text)) : null,
    h("p", { class: "input-error", role: "alert", hidden: true }),
  );
}

/** Renderers by block type. `place` as for `element`. */
const KINDS = {
  section: ({ text, fields, accessory }, place) =>
    h(
      "div",
      { class: "block-section" },
      h("div", { class: "section-body" }, text && textNodes(text, place.directory), fields && h("div", { class: "fields" }, fields.map((each) => h("div", {}, textNodes(each, place.directory))))),
      accessory && h("div", { class: "accessory" }, part(accessory, place)),
    ),
  header: ({ text, level = 1 }, { directory }) => h("div", { class: "block-header", role: "heading", "aria-level": String(Math.min(level + 2, 6)) }, textNodes(text, directory)),
  context: ({ elements }, place) => h("div", { class: "block-context" }, elements.map((each) => part(each, place))),
  divider: () => h("hr", {}),
  actions: (block, place) => h("div", { class: "block-actions", role: "group", "aria-label": "Actions" }, block.elements.map((each) => part(each, place))),
  context_actions: (block, place) => h("div", { class: "block-actions small", role: "group", "aria-label": "Actions" }, block.elements.map((each) => part(each, place))),
  input,
  markdown: ({ text }, { directory }) => h("div", { class: "markdown" }, renderMarkdown(text, directory)),
  rich_text: ({ elements }, { directory }) => h("div", { class: "markdown" }, richText(elements, directory)),
  table: ({ rows, column_settings: columns = [] }, { directory }) => table(rows.map((row) => row.map((cell) => cellNodes(cell, directory))), columns.map((each) => each?.align)),
  image: (block) => image(block),
  task_card: (block, { directory }) => task(block, directory),
  plan: ({ title, tasks = [] }, { directory }) => h("div", { class: "plan" }, h("strong", {}, isText(title) ? plainText(title.text) : title), tasks.map((each) => task(each, directory))),
};

const part = (each, place) => (isText(each) ? h("div", {}, textNodes(each, place.directory)) : each.type === "image" ? smallImage(each) : element(each, place));

const cellNodes = (cell, directory) => (cell.type === "rich_text" ? richText(cell.elements, directory) : render(cell.text ?? "", directory));

/** Images are shown as their alt text and address; nothing is loaded from other servers. */
function image({ title, alt_text: words, image_url: url, slack_file: file }) {
  const address = url ?? file?.url;
  const line = address ? link(address, title?.text ?? "Open the picture") : title?.text;
  return h("figure", { class: "block-image" }, icon("image"), h("div", {}, h("span", {}, words), line && h("figcaption", {}, line)));
}

const smallImage = ({ alt_text: words }) => h("span", { class: "small-image", role: "img", "aria-label": words, title: words }, icon("image"), words);

const STATES = { pending: "to do", in_progress: "in progress", complete: "done", error: "failed" };

/** A task of an agent: state, title, details, output and sources. */
function task({ title, status, details, output, sources }, directory) {
  const more = [details, output].filter((each) => each?.type === "rich_text").map((each) => h("div", { class: "markdown" }, richText(each.elements, directory)));
  return h("div", { class: "task-card", dataset: { status } }, h("span", { class: "task-state", role: "img", "aria-label": STATES[status] ?? status }), h("div", {}, h("span", {}, title), more, (sources ?? []).map(({ url, text }) => h("div", { class: "task-source" }, link(url, text ?? url)))));
}

function built(block, place) {
  const kind = Object.hasOwn(KINDS, block?.type) ? KINDS[block.type] : null;
  if (!kind) return unknown(`Unsupported block: ${block?.type}`);
  try {
    return kind(block, place);
  } catch {
    return unknown(`Invalid ${block.type} block: Slack would refuse it`);
  }
}

const unknown = (words) => h("p", { class: "unknown-block" }, words);

/**
 * The blocks of one message or view. Blocks that an edit does not change keep their elements, so that their buttons stay
 * usable; an input that it changes keeps its value.
 */
export class BlocksView {
  #session;
  #press;
  #shown = [];
  #before = {};

  /** `press(action, control)` sends a click on `control` to the app. */
  constructor(session, press) {
    this.#session = session;
    this.#press = press;
    this.element = h("div", { class: "blocks", testid: "blocks" });
  }

  /** The values of all inputs, by block and action. */
  get state() {
    const values = ({ inputs }) => Object.fromEntries([...inputs].map(([action, read]) => [action, read()]));
    return Object.fromEntries(this.#shown.filter(({ inputs }) => inputs.size).map((slot) => [slot.block.block_id, values(slot)]));
  }

  /** Show the sentences of refused inputs, by block; returns those of no block. */
  showErrors(sentences) {
    const rest = new Set(sentences);
    for (const { block, element } of this.#shown.filter((slot) => slot.block.type === "input")) {
      const found = sentences.find((each) => each.startsWith(`${block.block_id}: `));
      element.lastChild.textContent = found?.slice(block.block_id.length + 2) ?? "";
      element.lastChild.hidden = !found;
      rest.delete(found);
    }
    return [...rest];
  }

  /** Show these blocks; returns the new elements. A text that only grows, as in a stream, is not new. */
  update(blocks) {
    const old = this.#shown;
    this.#before = this.state;
    const grows = (block) => block?.type === "markdown" && old.some((each) => each.block?.type === "markdown" && String(block.text).startsWith(each.block.text));
    this.#shown = blocks.map((block) => this.#keep(block, old) ?? this.#make(block, !grows(block)));
    for (const { element: gone } of old) gone.remove();
    let cursor = this.element.firstElementChild;
    for (const { element: wanted } of this.#shown) {
      if (cursor === wanted) cursor = cursor.nextElementSibling;
      else this.element.insertBefore(wanted, cursor);
    }
    return this.#shown.filter(({ fresh }) => fresh).map((each) => each.element);
  }

  #keep(block, old) {
    const key = keyOf(block);
    const at = old.findIndex((each) => each.key === key);
    if (at < 0) return null;
    const [slot] = old.splice(at, 1);
    slot.block = block;
    slot.fresh = false;
    return slot;
  }

  #make(block, fresh) {
    const slot = { key: keyOf(block), block, fresh, inputs: new Map() };
    const press = (action, control) => this.#press({ ...action, block_id: slot.block.block_id, state: this.state }, control);
    const kept = this.#before[block?.block_id] ?? {};
    slot.element = built(block, { session: this.#session, directory: this.#session.directory, press, inputs: slot.inputs, kept });
    return slot;
  }
}

/** Compares without ids: Slack may give a block without an id a new one with every edit. */
const keyOf = (block) => JSON.stringify({ ...block, block_id: undefined });

/** Whether one of the blocks has a button with this `action_id`. */
export function hasAction(message, actionId) {
  const elements = (message?.blocks ?? []).flatMap((block) => [block?.accessory, ...(Array.isArray(block?.elements) ? block.elements : [])]);
  return elements.some((each) => each?.type === "button" && each.action_id === actionId);
}
