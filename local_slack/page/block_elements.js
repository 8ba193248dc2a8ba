import { plainText } from "./block_text.js";
import { h, icon } from "./dom.js";
import { showDialog } from "./quick_switcher.js";

/** Interactive elements. `place.press(action, control)` sends the action to the app. */
const KINDS = {
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

export function element(each, place) {
  const kind = Object.hasOwn(KINDS, each?.type) ? KINDS[each.type] : null;
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
