import { element } from "./block_elements.js";
import { h, icon } from "./dom.js";
import { renderMarkdown, table } from "./markdown.js";
import { link, render } from "./mrkdwn.js";
import { isText, plainText, textNodes } from "./block_text.js";
import { richText } from "./rich_text.js";

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
  return h("figure", { class: "block-image", role: "img", "aria-label": words }, icon("image"), h("div", {}, h("span", {}, words), line && h("figcaption", {}, line)));
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
