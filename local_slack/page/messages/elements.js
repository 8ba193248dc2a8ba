import { h, icon } from "../dom.js";
import { showDialog } from "../panes/dialogs.js";
import { displayName } from "../state/directory.js";
import { plainText, plainWords, textNodes } from "../text/mrkdwn.js";

let lastGroup = 0;

/**
 * An interactive element. `place.press(action, control)` sends an action to the app, null if the element only keeps its value;
 * `place.inputs` gets a function that reads the value, by action; `place.kept` has values to begin with, by action.
 */
export function element(each, place) {
  const kind = Object.hasOwn(ELEMENTS, each?.type) ? ELEMENTS[each.type] : null;
  if (!kind) return h("span", { class: "unknown-block" }, `Unsupported element: ${each?.type}`);
  const readers = each.visible_to_user_ids ?? [];
  return readers.length && !readers.includes(place.session?.me.id) ? null : kind(each, place);
}

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
  overflow: ({ options, action_id, confirm }, { press }) => {
    const choose = (option) => {
      menu.open = false;
      asked(confirm, () => press({ type: "overflow", action_id, value: option.value }, menu));
    };
    const items = options.map((option) => h("button", { type: "button", onclick: () => choose(option) }, plainText(option.text.text)));
    const menu = dropdown("overflow", action_id, [icon("dots")], "More actions", items);
    return menu;
  },
  static_select: (select, place) => oneOf(select, place, optionsOf(select), select.initial_option?.value),
  users_select: (select, place) => oneOf(select, place, usersOf(place), select.initial_user),
  multi_static_select: (select, place) => someOf(select, place, optionsOf(select), valuesOf(select.initial_options)),
  multi_users_select: (select, place) => someOf(select, place, usersOf(place), select.initial_users ?? []),
  radio_buttons: (choice, place) => group(choice, place, "radio", optionsOf(choice), valuesOf([choice.initial_option]), ([chosen]) => chosen ?? null),
  checkboxes: (choice, place) => group(choice, place, "checkbox", optionsOf(choice), valuesOf(choice.initial_options), (chosen) => chosen),
  plain_text_input: textInput,
  email_text_input: textInput,
  number_input: textInput,
  url_text_input: textInput,
};

const optionsOf = ({ options, option_groups: groups }) => options ?? groups.flatMap((each) => each.options.map((option) => ({ ...option, group: plainWords(each.label) })));
const usersOf = ({ directory }) => directory.everyone.map((user) => ({ text: { type: "plain_text", text: displayName(user) }, value: user.id }));
const valuesOf = (options) => (options ?? []).filter(Boolean).map((each) => each.value);

const pressing = (press, action, confirm) => ({ currentTarget }) => asked(confirm, () => press(action, currentTarget));

/** A menu with one choice. */
function oneOf({ type, action_id, placeholder, confirm }, { press, inputs, kept, label }, options, initial) {
  const chosen = kept[action_id] ?? initial;
  const words = placeholder ? plainWords(placeholder) : "Choose";
  const first = h("option", { value: "", disabled: true, selected: !chosen, hidden: true }, words);
  const entry = (option) => h("option", { value: option.value, selected: chosen === option.value }, plainWords(option.text));
  const groups = Map.groupBy(options, (option) => option.group ?? "");
  const entries = [...groups].map(([name, each]) => (name ? h("optgroup", { label: name }, each.map(entry)) : each.map(entry)));
  let sent = chosen ?? "";
  const send = () => {
    sent = select.value;
    press({ type, action_id, value: sent }, select);
  };
  const choose = () => press && asked(confirm, send, () => { select.value = sent; });
  const select = h("select", { class: "block-select", testid: `action-${action_id}`, "aria-label": label ?? words, onchange: choose }, first, ...entries);
  inputs.set(action_id, () => select.value || null);
  return select;
}

/** A menu with several choices: checkboxes in a dropdown. */
function someOf(select, place, options, initial) {
  const words = select.placeholder ? plainWords(select.placeholder) : "Choose";
  const shown = h("span", { class: "chosen" });
  const show = (values) => {
    shown.textContent = options.filter((each) => values.includes(each.value)).map((each) => plainWords(each.text)).join(", ") || words;
  };
  const boxes = group({ ...select, onchange: show, testid: null }, place, "checkbox", options, initial, (chosen) => chosen);
  show(place.inputs.get(select.action_id)());
  return dropdown("overflow several", select.action_id, [shown, icon("chevron")], place.label ?? words, [boxes]);
}

/** Radio buttons or checkboxes. `value` makes the element's value of the chosen options. */
function group({ type, action_id, confirm, onchange, testid = `action-${action_id}`, max_selected_items: most }, { press, inputs, kept, label, directory }, kind, options, initial, value) {
  const name = `choice-${(lastGroup += 1)}`;
  const before = [kept[action_id] ?? initial].flat();
  const box = (option) => h("input", { type: kind, name, value: option.value, checked: before.includes(option.value) });
  const boxes = options.map(box);
  const chosen = () => boxes.filter((each) => each.checked).map((each) => each.value);
  const limit = () => boxes.forEach((each) => { each.disabled = Boolean(most) && !each.checked && chosen().length >= most; });
  const choose = () => {
    limit();
    onchange?.(chosen());
    if (press) asked(confirm, send, undo);
  };
  let sent = before;
  const send = () => {
    sent = chosen();
    press({ type, action_id, value: value(sent) }, list);
  };
  const undo = () => {
    for (const each of boxes) each.checked = sent.includes(each.value);
    limit();
    onchange?.(sent);
  };
  const detail = ({ description }) => description && h("small", {}, textNodes(description, directory));
  const rows = options.map((option, index) => h("label", { class: "choice" }, boxes[index], h("span", {}, textNodes(option.text, directory), detail(option))));
  const list = h("div", { class: "block-choices", role: kind === "radio" ? "radiogroup" : "group", testid, "aria-label": label ?? "Choices", onchange: choose }, rows);
  inputs.set(action_id, () => value(chosen()));
  limit();
  return list;
}

const KINDS_OF_TEXT = { email_text_input: "email", url_text_input: "url", number_input: "number" };

/** A text. With `press`, Enter sends it. */
function textInput({ type, action_id, multiline, placeholder, initial_value: initial, min_length: least, max_length: most = 3000 }, { press, inputs, kept, label }) {
  const text = kept[action_id] ?? initial ?? "";
  const props = { class: "block-text", testid: `action-${action_id}`, "aria-label": label, placeholder: placeholder && plainWords(placeholder), minlength: least, maxlength: most };
  const field = multiline ? h("textarea", { ...props, rows: "4" }) : h("input", { ...props, type: KINDS_OF_TEXT[type] ?? "text", step: type === "number_input" ? "any" : null });
  field.value = text;
  field.addEventListener("keydown", (event) => {
    if (event.key !== "Enter" || event.isComposing || multiline || !press) return;
    event.preventDefault();
    press({ type, action_id, value: field.value }, field);
  });
  inputs.set(action_id, () => field.value);
  return field;
}

/** A button that opens a list below it, or above it if there is no room; Esc and the loss of focus close it. */
export function dropdown(name, actionId, content, label, items) {
  const menu = h("details", { class: name, testid: actionId && `action-${actionId}` }, h("summary", { class: "block-button", "aria-label": label, title: label }, content), h("div", { class: "overflow-menu" }, items));
  menu.addEventListener("toggle", () => {
    menu.classList.remove("up");
    const pane = menu.closest(".scroller, .home, .modal-body")?.getBoundingClientRect();
    menu.classList.toggle("up", menu.open && menu.lastElementChild.getBoundingClientRect().bottom > pane?.bottom);
  });
  menu.addEventListener("focusout", (event) => menu.contains(event.relatedTarget) || (menu.open = false));
  menu.addEventListener("keydown", (event) => {
    if (event.key !== "Escape" || !menu.open) return;
    event.stopPropagation();
    event.preventDefault();
    menu.open = false;
    menu.firstElementChild.focus();
  });
  return menu;
}

/** Show the confirmation dialog of an element before its action is sent; `undo` takes back a choice that is not confirmed. */
function asked(confirm, send, undo = () => {}) {
  if (!confirm) return send();
  let isSure = false;
  const keep = h("button", { type: "button", class: "plain-button" }, plainText(confirm.deny?.text ?? "Cancel"));
  const go = h("button", { type: "button", class: confirm.style === "danger" ? "danger-button" : "strong-button", testid: "confirm-action" }, plainText(confirm.confirm?.text ?? "Yes"));
  const words = [h("h2", {}, plainText(confirm.title?.text ?? "Are you sure?")), h("p", {}, plainText(confirm.text?.text ?? ""))];
  const dialog = h("dialog", { class: "question", "aria-label": confirm.title?.text ?? "Are you sure?" }, words, h("div", { class: "notice-actions" }, go, keep));
  keep.addEventListener("click", () => dialog.close());
  go.addEventListener("click", () => {
    isSure = true;
    dialog.close();
  });
  dialog.addEventListener("close", () => (isSure ? send() : undo()));
  showDialog(dialog);
}
