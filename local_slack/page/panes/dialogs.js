import { h, iconButton } from "../dom.js";
import { kindTag, userAvatar } from "../messages/avatar.js";
import { displayName } from "../state/directory.js";

/** A dialog that jumps to a channel or a person by part of the name. `actions` as for the sidebar. */
export function openQuickSwitcher(session, actions) {
  if (document.querySelector("dialog[open]")) return;
  const places = everywhere(session, actions);
  const list = h("ul", { class: "choices", role: "listbox", id: "switcher-list", "aria-label": "Places" });
  const field = h("input", { type: "text", class: "search", placeholder: "Jump to a channel or a person", "aria-label": "Jump to", "aria-controls": "switcher-list", autocomplete: "off", testid: "quick-switcher-field" });
  const nothing = h("p", { class: "nothing", role: "status" });
  const dialog = h("dialog", { class: "switcher", testid: "quick-switcher", "aria-label": "Jump to" }, field, list, nothing);
  let found = [];
  let active = 0;

  const take = (place) => {
    dialog.close();
    place.go();
  };
  const activate = (index) => {
    active = index;
    [...list.children].forEach((each, at) => each.setAttribute("aria-selected", String(at === index)));
    field.setAttribute("aria-activedescendant", `switcher-${index}`);
    list.children[index]?.scrollIntoView({ block: "nearest" });
  };
  const show = () => {
    const query = field.value.trim().toLowerCase().replace(/^[@#]/, "");
    found = matching(places, query);
    const rows = found.map((place, index) => row(place, index, () => take(place)));
    list.replaceChildren(...rows);
    list.hidden = !rows.length;
    nothing.textContent = rows.length ? "" : "Nothing with that name.";
    if (rows.length) activate(0);
    else field.removeAttribute("aria-activedescendant");
  };
  field.addEventListener("input", show);
  field.addEventListener("keydown", (event) => {
    const step = { ArrowDown: 1, ArrowUp: -1 }[event.key];
    if (step && found.length) activate((active + step + found.length) % found.length);
    else if (event.key === "Enter" && found[active]) take(found[active]);
    else return;
    event.preventDefault();
  });
  showDialog(dialog, show);
}

/** Show a modal dialog; a click outside closes it. It is removed when it closes. */
export function showDialog(dialog, prepare = () => {}) {
  dialog.addEventListener("click", (event) => event.target === dialog && dialog.close());
  dialog.addEventListener("keydown", (event) => event.key === "Escape" && event.stopPropagation());
  dialog.addEventListener("close", () => dialog.remove());
  document.body.append(dialog);
  prepare();
  dialog.showModal();
}

/** Names that begin with the query come first. */
function matching(places, query) {
  const starts = (place) => place.names.some((name) => name.toLowerCase().startsWith(query));
  const found = places.filter((place) => place.names.some((name) => name.toLowerCase().includes(query)));
  return [...found.filter(starts), ...found.filter((place) => !starts(place))];
}

function everywhere({ directory }, actions) {
  const channels = directory.openChannels.map((channel) => ({
    names: [channel.name],
    label: channel.name,
    detail: "channel",
    picture: h("span", { class: "glyph" }, "#"),
    go: () => actions.openChannel(channel),
  }));
  const users = directory.partners.map((user) => ({
    names: [user.name, displayName(user)],
    label: displayName(user),
    detail: kindTag(user)?.title || (user.is_bot ? "app" : "person"),
    picture: userAvatar(user, "small"),
    go: () => actions.openDirect(user),
  }));
  return [...channels, ...users];
}

function row(place, index, onclick) {
  return h("li", { role: "option", id: `switcher-${index}`, onclick }, place.picture, h("span", { class: "label" }, place.label), h("span", { class: "detail" }, place.detail));
}

const KEYS = [
  ["Enter", "send"],
  ["Shift Enter", "new line"],
  ["↑", "edit your last message (in an empty field)"],
  ["@", "mention; Tab or Enter inserts the suggestion"],
  ["Ctrl K", "jump to a channel or a person (⌘K on a Mac)"],
  ["Ctrl ,", "write as the next person"],
  ["Ctrl .", "open faults and limits"],
  ["↑ ↓", "move between messages; Tab reaches their actions"],
  ["Esc", "close the open panel or dialog"],
  ["?", "show these shortcuts"],
];

export function openKeySheet() {
  if (document.querySelector("dialog[open]")) return;
  const rows = KEYS.flatMap(([keys, meaning]) => [h("dt", {}, keys.split(" ").map((key) => h("kbd", {}, key))), h("dd", {}, meaning)]);
  const dialog = h("dialog", { class: "key-sheet", testid: "key-sheet", "aria-label": "Keyboard shortcuts" });
  dialog.append(h("header", {}, h("h2", {}, "Keyboard"), iconButton("close", "Close", () => dialog.close())), h("dl", {}, rows));
  showDialog(dialog);
}
