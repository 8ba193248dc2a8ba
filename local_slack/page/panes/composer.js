import { h, icon, iconButton } from "../dom.js";
import { userAvatar } from "../messages/avatar.js";
import { dropdown } from "../messages/elements.js";
import { Attachments } from "./attachments.js";
import { pickEmoji } from "./emoji_picker.js";
import { personMenu } from "./person_menu.js";
import { displayName } from "../state/directory.js";
import { emojiFor, searchEmoji } from "../text/emoji.js";

/** Unsent text per person and place, kept while the tab is open. */
class Drafts {
  #prefix;

  constructor(personId) {
    this.#prefix = `local_slack.draft.${personId}.`;
  }

  of(place) {
    return sessionStorage.getItem(this.#prefix + place) ?? "";
  }

  keep(place, text) {
    if (text) sessionStorage.setItem(this.#prefix + place, text);
    else sessionStorage.removeItem(this.#prefix + place);
  }
}

const LIMIT = 7;
const TRIGGER = /(?:^|[\s(])([@#:])([\p{L}\p{N}_+-]*)$|^(\/)([a-z0-9_-]*)$/u;
const UNSENT_ELSEWHERE = "Your message in another conversation was not sent: open that one to send it again.";
let lastId = 0;

/** Suggestions after `@`, `#` or `:`. Tab or Enter inserts one, Esc closes the list. */
class Completion {
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
    const [trigger, query] = match?.slice(1).filter((part) => part !== undefined) ?? [];
    this.#found = match ? this.#search(trigger, query.toLowerCase()) : [];
    if (!this.isOpen) return this.close();
    this.#typed = trigger + query;
    this.#show();
  }

  #search(trigger, query) {
    const { directory } = this.#session;
    if (trigger === "/") return directory.commands.filter((each) => each.startsWith(`/${query}`)).slice(0, LIMIT).map(commandChoice);
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

const channelChoice = ({ name }) => ({ text: `#${name}`, label: name, detail: "", picture: h("span", { class: "glyph" }, "#") });
const commandChoice = (command) => ({ text: command, label: command, detail: "command of the app", picture: h("span", { class: "glyph" }, "/") });
const emojiChoice = ({ name, char }) => ({ text: char, label: `:${name}:`, detail: "", picture: h("span", { class: "glyph emoji" }, char) });
const everybodyChoice = (name) => ({ text: `@${name}`, label: name, detail: "everyone in this channel", picture: h("span", { class: "glyph" }, "@") });

/**
 * A message composer. Options: `label`, `placeholder`, `testid`, `initial`, `onSubmit(typed, files)` (a rejected promise
 * restores both), `onArrowUp` (in an empty field), `become(person)` to switch who writes, and `actions {save, cancel}` for
 * an editor, which submits an empty text only if it is `optional`. The unsent text of an opened place is kept as its draft.
 */
export class Composer {
  #options;
  #drafts;
  #place = null;
  #failure = h("p", { class: "composer-failure", role: "alert", hidden: true });

  constructor(session, options) {
    this.#options = { ...options, session };
    this.#drafts = new Drafts(session.me.id);
    const { label, placeholder = "", testid = "composer", become } = options;
    this.field = h("textarea", { rows: "1", "aria-label": label, placeholder, testid, autocomplete: "off", spellcheck: "true" });
    this.completion = new Completion(this.field, session);
    this.attachments = options.actions ? null : new Attachments({ changed: () => this.#changed(), refuse: (sentences) => this.#fail(sentences), focus: () => this.focus() });
    this.element = h(
      "div",
      { class: "composer" },
      this.#failure,
      h("div", { class: "composer-box" }, this.attachments?.element, this.field, h("div", { class: "composer-bar" }, this.#tools(), become && personMenu(session, become, { name: "writer", label: "as", size: "small" }), this.#buttons())),
      this.completion.element,
    );
    this.field.addEventListener("input", () => this.#changed());
    this.field.addEventListener("keydown", (event) => this.#key(event));
    this.field.addEventListener("paste", (event) => this.#attach(event, event.clipboardData));
    this.value = options.initial ?? "";
  }

  get value() {
    return this.field.value;
  }

  set value(text) {
    this.field.value = text;
    this.#changed();
  }

  get isEmpty() {
    return !this.value.trim() && (this.attachments?.isEmpty ?? true);
  }

  /** Show the draft of a place; the files of another place are dropped. */
  open(place) {
    if (place !== this.#place) {
      this.attachments.take();
      this.#fail("");
    }
    this.#place = place;
    this.value = this.#drafts.of(place);
  }

  /** Attach the files that are dropped on `pane`. */
  acceptDrops(pane) {
    const mark = (on) => pane.classList.toggle("dropping", on);
    pane.addEventListener("dragover", ({ dataTransfer }) => mark(dataTransfer.types.includes("Files")));
    pane.addEventListener("dragleave", ({ relatedTarget }) => mark(pane.contains(relatedTarget) && pane.classList.contains("dropping")));
    pane.addEventListener("drop", (event) => {
      mark(false);
      this.#attach(event, event.dataTransfer);
    });
  }

  focus() {
    this.field.focus({ preventScroll: true });
    this.field.setSelectionRange(this.value.length, this.value.length);
  }

  set placeholder(text) {
    this.field.placeholder = text;
    this.field.setAttribute("aria-label", text);
  }

  /** Height follows the text; CSS sets the limits. */
  fit() {
    this.field.style.height = "auto";
    if (this.field.scrollHeight) this.field.style.height = `${this.field.scrollHeight}px`;
  }

  #changed() {
    this.fit();
    this.element.classList.toggle("filled", !this.isEmpty);
    if (this.#place) this.#drafts.keep(this.#place, this.value);
  }

  #attach(event, data) {
    if (!this.attachments || !data?.files.length) return;
    event.preventDefault();
    this.attachments.add(data.files);
    this.focus();
  }

  #fail(sentence) {
    this.#failure.textContent = sentence;
    this.#failure.hidden = !sentence;
  }

  #tools() {
    const emoji = (event) => pickEmoji(event.currentTarget, (name) => this.#insert(emojiFor(name)));
    return h(
      "div",
      { class: "composer-tools" },
      this.attachments && [this.attachments.button, this.attachments.input],
      this.#shortcuts(),
      iconButton("smile", "Insert emoji", emoji),
      iconButton("at", "Mention someone", () => this.#insert(/(^|\s)$/.test(this.#before) ? "@" : " @")),
      h("span", { class: "composer-keys", "aria-hidden": "true" }, h("kbd", {}, "Shift"), h("kbd", {}, "Enter"), " new line"),
    );
  }

  /** The menu of global shortcuts, if the app has any. */
  #shortcuts() {
    const { session, actions } = this.#options;
    const shortcuts = actions ? [] : session.directory.shortcuts.filter((each) => each.type === "global");
    if (!shortcuts.length) return null;
    const use = (event, { callback_id: id }) => {
      event.currentTarget.closest("details").open = false;
      session.useShortcut(id).catch((error) => this.#fail(error.message));
    };
    const items = shortcuts.map((each) => h("button", { type: "button", testid: `shortcut-${each.callback_id}`, onclick: (event) => use(event, each) }, each.name));
    return dropdown("overflow shortcuts", null, [icon("plus")], "Shortcuts", items);
  }

  #buttons() {
    const { actions } = this.#options;
    const submit = () => this.#submit();
    if (!actions) {
      return h("button", { type: "button", class: "send", testid: "send", "aria-label": "Send", title: "Send (Enter)", onclick: submit }, icon("send"));
    }
    return h(
      "div",
      { class: "composer-actions" },
      h("button", { type: "button", class: "plain-button", onclick: actions.cancel }, "Cancel"),
      h("button", { type: "button", class: "strong-button", testid: "save-edit", onclick: submit }, actions.save),
    );
  }

  get #before() {
    return this.value.slice(0, this.field.selectionStart);
  }

  #insert(text) {
    this.field.focus();
    this.field.setRangeText(text, this.field.selectionStart, this.field.selectionEnd, "end");
    this.field.dispatchEvent(new Event("input"));
  }

  #key(event) {
    if (event.isComposing || this.completion.key(event)) return;
    const { actions, onArrowUp } = this.#options;
    if (event.key === "Enter" && !event.shiftKey && !this.#inFence) {
      event.preventDefault();
      this.#submit();
    } else if (event.key === "ArrowUp" && !this.value && onArrowUp) {
      event.preventDefault();
      onArrowUp();
    } else if (event.key === "Escape" && actions) {
      event.stopPropagation();
      actions.cancel();
    }
  }

  /** Inside an open ```, Enter inserts a new line, as in Slack. */
  get #inFence() {
    return this.#before.split("```").length % 2 === 0;
  }

  /** Empties the composer at once; restores its content if sending fails, or only the draft if another place is open by then. */
  async #submit() {
    const place = this.#place;
    const typed = this.value;
    if (this.isEmpty && !this.#options.optional) return;
    const files = this.attachments?.take() ?? [];
    const isEditor = Boolean(this.#options.actions);
    this.#failure.hidden = true;
    if (!isEditor) this.value = "";
    try {
      await this.#options.onSubmit(typed, files);
    } catch (error) {
      const restored = (text) => [typed, text].filter(Boolean).join("\n");
      if (place !== this.#place) {
        this.#drafts.keep(place, restored(this.#drafts.of(place)));
        this.#fail(`${error.message} ${UNSENT_ELSEWHERE}${files.length ? " Attach its files again." : ""}`);
        return;
      }
      if (!isEditor) this.value = restored(this.value);
      this.attachments?.add(files);
      this.#fail(error.message);
    }
  }
}
