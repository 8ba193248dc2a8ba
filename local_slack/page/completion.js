import { userAvatar } from "./avatar.js";
import { displayName } from "./directory.js";
import { h } from "./dom.js";
import { searchEmoji } from "./emoji.js";

const LIMIT = 7;
const TRIGGER = /(?:^|[\s(])([@#:])([\p{L}\p{N}_+-]*)$/u;
let lastId = 0;

/** Suggestions after `@`, `#` or `:`. Tab or Enter inserts one, Esc closes the list. */
export class Completion {
  #field;
  #session;
  #found = [];
  #active = 0;
  #typed = "";

  constructor(field, session) {
    this.#field = field;
    this.#session = session;
    this.id = `completion-${(lastId += 1)}`;
    this.element = h("ul", { class: "completion", role: "listbox", id: this.id, hidden: true, "aria-label": "Suggestions", testid: "autocomplete" });
    field.setAttribute("aria-autocomplete", "list");
    field.setAttribute("aria-controls", this.id);
    field.addEventListener("input", () => this.#look());
    field.addEventListener("blur", () => this.close());
  }

  get isOpen() {
    return this.#found.length > 0;
  }

  close() {
    this.#found = [];
    this.element.hidden = true;
    this.#field.removeAttribute("aria-activedescendant");
  }

  /** Handle a key of the field; returns true if it was consumed. */
  key(event) {
    if (!this.isOpen) return false;
    const count = this.#found.length;
    switch (event.key) {
      case "ArrowDown": this.#activate((this.#active + 1) % count); break;
      case "ArrowUp": this.#activate((this.#active + count - 1) % count); break;
      case "Tab":
      case "Enter": this.#take(this.#active); break;
      case "Escape": this.close(); break;
      default: return false;
    }
    event.preventDefault();
    event.stopPropagation();
    return true;
  }

  #look() {
    const before = this.#field.value.slice(0, this.#field.selectionStart);
    const match = TRIGGER.exec(before);
    this.#found = match ? this.#search(match[1], match[2].toLowerCase()) : [];
    if (!this.isOpen) return this.close();
    this.#typed = match[1] + match[2];
    this.#show();
  }

  #search(trigger, query) {
    const { directory } = this.#session;
    if (trigger === ":") return query.length < 2 ? [] : searchEmoji(query).slice(0, LIMIT).map(emojiChoice);
    const starts = (...names) => names.some((name) => name?.toLowerCase().startsWith(query));
    if (trigger === "#") return directory.openChannels.filter((each) => starts(each.name)).slice(0, LIMIT).map(channelChoice);
    const users = directory.everyone.filter((each) => starts(each.name, each.real_name)).map(userChoice);
    const everybody = ["here", "channel"].filter((name) => query && name.startsWith(query)).map(everybodyChoice);
    return [...users, ...everybody].slice(0, LIMIT);
  }

  #show() {
    const options = this.#found.map(({ picture, label, detail }, index) =>
      h(
        "li",
        { role: "option", id: `${this.id}-${index}`, onmousedown: (event) => this.#click(event, index), onmousemove: () => this.#activate(index) },
        picture,
        h("span", { class: "label" }, label),
        h("span", { class: "detail" }, detail),
      ),
    );
    this.element.replaceChildren(...options);
    this.element.hidden = false;
    this.#activate(0);
  }

  #activate(index) {
    this.#active = index;
    [...this.element.children].forEach((option, at) => option.setAttribute("aria-selected", String(at === index)));
    this.element.children[index]?.scrollIntoView({ block: "nearest" });
    this.#field.setAttribute("aria-activedescendant", `${this.id}-${index}`);
  }

  #click(event, index) {
    event.preventDefault();
    this.#take(index);
  }

  #take(index) {
    const end = this.#field.selectionStart;
    this.#field.setRangeText(`${this.#found[index].text} `, end - this.#typed.length, end, "end");
    this.close();
    this.#field.dispatchEvent(new Event("input"));
  }
}

function userChoice(user) {
  const kind = user.is_bot ? (user.online ? "app, online" : "app, not connected") : displayName(user);
  return { text: `@${user.name}`, label: user.name, detail: kind, picture: userAvatar(user, "small") };
}

const channelChoice = ({ name, topic }) => ({ text: `#${name}`, label: name, detail: topic ?? "", picture: h("span", { class: "glyph" }, "#") });
const emojiChoice = ({ name, char }) => ({ text: char, label: `:${name}:`, detail: "", picture: h("span", { class: "glyph emoji" }, char) });
const everybodyChoice = (name) => ({ text: `@${name}`, label: name, detail: "everyone in this channel", picture: h("span", { class: "glyph" }, "@") });
