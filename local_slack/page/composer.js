import { Completion } from "./completion.js";
import { h, icon, iconButton } from "./dom.js";
import { emojiFor } from "./emoji.js";
import { pickEmoji } from "./emoji_picker.js";

/**
 * A message composer. Options: `label`, `placeholder`, `testid`, `initial`, `onSubmit(typed)` (a rejected promise
 * restores the text), `onArrowUp` (in an empty field), `onChange(text)`, and `actions {save, cancel}` for an editor.
 */
export class Composer {
  #options;
  #failure = h("p", { class: "composer-failure", role: "alert", hidden: true });

  constructor(session, options) {
    this.#options = options;
    const { label, placeholder = "", testid = "composer" } = options;
    this.field = h("textarea", { rows: "1", "aria-label": label, placeholder, testid, autocomplete: "off", spellcheck: "true" });
    this.completion = new Completion(this.field, session);
    this.element = h(
      "div",
      { class: "composer" },
      this.#failure,
      h("div", { class: "composer-box" }, this.field, h("div", { class: "composer-bar" }, this.#tools(), this.#buttons())),
      this.completion.element,
    );
    this.field.addEventListener("input", () => this.#changed());
    this.field.addEventListener("keydown", (event) => this.#key(event));
    this.value = options.initial ?? "";
  }

  get value() {
    return this.field.value;
  }

  set value(text) {
    this.field.value = text;
    this.#changed();
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
    this.element.classList.toggle("filled", this.value.trim() !== "");
    this.#options.onChange?.(this.value);
  }

  #tools() {
    const emoji = (event) => pickEmoji(event.currentTarget, (name) => this.#insert(emojiFor(name)));
    return h(
      "div",
      { class: "composer-tools" },
      iconButton("smile", "Insert emoji", emoji),
      iconButton("at", "Mention someone", () => this.#insert(/(^|\s)$/.test(this.#before) ? "@" : " @")),
      h("span", { class: "composer-keys", "aria-hidden": "true" }, h("kbd", {}, "Shift"), h("kbd", {}, "Enter"), " new line"),
    );
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

  /** Empties the field at once; restores the text if sending fails. */
  async #submit() {
    const typed = this.value;
    if (!typed.trim()) return;
    const isEditor = Boolean(this.#options.actions);
    this.#failure.hidden = true;
    if (!isEditor) this.value = "";
    try {
      await this.#options.onSubmit(typed);
    } catch (error) {
      if (!isEditor) this.value = [typed, this.value].filter(Boolean).join("\n");
      this.#failure.textContent = error.message;
      this.#failure.hidden = false;
    }
  }
}
