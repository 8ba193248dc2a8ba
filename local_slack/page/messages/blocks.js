import { h, icon } from "../dom.js";
import { showDialog } from "../panes/dialogs.js";
import { fullTime } from "../text/clock.js";
import { renderMarkdown, table } from "../text/markdown.js";
import { channelMention, emoji, fence, isText, link, plainText, render, textNodes, userMention } from "../text/mrkdwn.js";

/** Interactive elements. `place.press(action, control)` sends the action to the app. */
const ELEMENTS = {
  button: ({ text, style, url, value, action_id, confirm, accessibility_label: label }, { press }) => {
    const onclick = pressing(press, { type: "button", action_id, value }, confirm);
    const props = { class: `block-button ${style ?? ""}`, testid: `action-${action_id}`, "aria-label": label, onclick };
    if (/^https?:\/\//i.test(url ?? "")) return h("a", { ...props, href: url, target: "_blank", rel: "noopener noreferrer nofollow" }, plainText(text.text));
    return h("button", { type: "button", ...props }, plainText(text.text));
  },
  icon_button: ({ text, value, action_id, icon: name, confirm }, { press }) => {
    const onclick = pressing(press, { type: "icon_button", action_id, value }, confirm);
    return h("button", { type: "button", class: "block-button", testid: `action-${action_id}`, onclick }, name === "trash" ? icon("trash") : null, plainText(text.text));
  },
  feedback_buttons: ({ action_id, positive_button: good, negative_button: bad }, { press }) => {
    const button = (each, sign, name) => {
      const onclick = pressing(press, { type: "feedback_buttons", action_id, value: each.value });
      const label = each.accessibility_label ?? each.text.text;
      return h("button", { type: "button", class: "block-button feedback", testid: `action-${action_id}-${name}`, "aria-label": label, title: label, onclick }, h("span", { class: "emoji", "aria-hidden": "true" }, sign));
    };
    return h("span", { class: "feedback-buttons" }, button(good, "👍", "good"), button(bad, "👎", "bad"));
  },
  static_select: (select, { press }) => {
    const { action_id, placeholder, initial_option: initial, confirm } = select;
    const options = select.options ?? select.option_groups.flatMap((group) => group.options);
    const choose = ({ currentTarget }) => {
      const selected = options[currentTarget.selectedIndex - 1];
      asked(confirm, () => press({ type: "static_select", action_id, selected_option: selected }, currentTarget));
    };
    const entry = (option) => h("option", { selected: initial?.value === option.value }, plainWords(option.text));
    const first = h("option", { disabled: true, selected: !initial, hidden: true }, placeholder?.text ?? "Choose");
    return h("select", { class: "block-select", testid: `action-${action_id}`, "aria-label": placeholder?.text ?? "Choose", onchange: choose }, first, options.map(entry));
  },
  overflow: ({ options, action_id, confirm }, { press }) => {
    const menu = h("details", { class: "overflow", testid: `action-${action_id}` }, h("summary", { class: "block-button", "aria-label": "More actions" }, icon("dots")));
    const choose = (option) => {
      menu.open = false;
      asked(confirm, () => press({ type: "overflow", action_id, selected_option: option }, menu));
    };
    menu.append(h("div", { class: "overflow-menu" }, options.map((option) => h("button", { type: "button", onclick: () => choose(option) }, plainText(option.text.text)))));
    menu.addEventListener("focusout", (event) => menu.contains(event.relatedTarget) || (menu.open = false));
    menu.addEventListener("keydown", (event) => {
      if (event.key !== "Escape" || !menu.open) return;
      event.stopPropagation();
      menu.open = false;
      menu.firstElementChild.focus();
    });
    return menu;
  },
};

function element(each, place) {
  const kind = Object.hasOwn(ELEMENTS, each?.type) ? ELEMENTS[each.type] : null;
  return kind ? kind(each, place) : h("span", { class: "unknown-block" }, `Unsupported element: ${each?.type}`);
}

const pressing = (press, action, confirm) => ({ currentTarget }) => asked(confirm, () => press(action, currentTarget));

const plainWords = ({ text }) => h("span", {}, plainText(text)).textContent;

/** Show the confirmation dialog of an element before its action is sent. */
function asked(confirm, send) {
  if (!confirm) return send();
  const keep = h("button", { type: "button", class: "plain-button" }, confirm.deny?.text ?? "Cancel");
  const go = h("button", { type: "button", class: confirm.style === "danger" ? "danger-button" : "strong-button", testid: "confirm-action" }, confirm.confirm?.text ?? "Yes");
  const words = [h("h2", {}, plainText(confirm.title?.text ?? "Are you sure?")), h("p", {}, plainText(confirm.text?.text ?? ""))];
  const dialog = h("dialog", { class: "question", "aria-label": confirm.title?.text ?? "Are you sure?" }, words, h("div", { class: "notice-actions" }, go, keep));
  keep.addEventListener("click", () => dialog.close());
  go.addEventListener("click", () => {
    dialog.close();
    send();
  });
  showDialog(dialog);
}

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

/** Renderers by block type. `place` has `directory` and `press(action, control)`. */
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

/** A task of an agent: state, title, details and output. */
function task({ title, status, details, output }, directory) {
  const more = [details, output].filter((each) => each?.type === "rich_text").map((each) => h("div", { class: "markdown" }, richText(each.elements, directory)));
  return h("div", { class: "task-card", dataset: { status } }, h("span", { class: "task-state", role: "img", "aria-label": STATES[status] ?? status }), h("div", {}, h("span", {}, title), more));
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

/** The blocks of one message. Blocks that an edit does not change keep their elements, so that their buttons stay usable. */
export class BlocksView {
  #session;
  #press;
  #shown = [];

  /** `press(action, control)` sends a click on `control` to the app. */
  constructor(session, press) {
    this.#session = session;
    this.#press = press;
    this.element = h("div", { class: "blocks", testid: "blocks" });
  }

  /** Show these blocks; returns the new elements. A text that only grows, as in a stream, is not new. */
  update(blocks) {
    const old = this.#shown;
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
    const slot = { key: keyOf(block), block, fresh };
    const press = (action, control) => this.#press({ ...action, block_id: slot.block.block_id }, control);
    slot.element = built(block, { directory: this.#session.directory, press });
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
