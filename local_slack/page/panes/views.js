import { h, iconButton } from "../dom.js";
import { BlocksView } from "../messages/blocks.js";
import { plainText, plainWords } from "../text/mrkdwn.js";

/** Presses in a view: the control looks pressed until the app responds. */
function pressing(session, place, fail) {
  return async (action, control) => {
    if (control.ariaBusy === "true") return;
    control.ariaBusy = "true";
    fail(null);
    try {
      await session.pressIn(place, action);
    } catch (error) {
      fail(error);
    } finally {
      control.ariaBusy = null;
    }
  };
}

/** The app's Home tab, and the tabs that switch to it in the app's direct message. */
export class HomeTab {
  #session;
  #shown = undefined;
  #buttons;

  constructor(session, fail) {
    this.#session = session;
    this.blocks = new BlocksView(session, pressing(session, "home", fail));
    this.empty = h("p", { class: "home-empty" }, "The app has not published anything here yet.");
    this.element = h("div", { class: "home", testid: "home", role: "tabpanel", "aria-label": "Home", hidden: true }, h("div", { class: "text" }, this.blocks.element, this.empty));
    this.#buttons = ["home", "messages"].map((tab) => h("button", { type: "button", role: "tab", testid: `tab-${tab}`, onclick: () => session.openTab(tab) }, tab === "home" ? "Home" : "Messages"));
    this.tabs = h("div", { class: "tabs", role: "tablist", "aria-label": "The app", hidden: true }, this.#buttons);
  }

  /** Returns whether the Home tab is open. */
  update(channel) {
    const { directory, tab, views } = this.#session;
    const isApp = directory.bots.some((bot) => bot.id === directory.partnerOf(channel)?.id);
    const isOpen = isApp && tab === "home";
    this.tabs.hidden = !isApp;
    this.element.hidden = !isOpen;
    this.#buttons.forEach((button, index) => button.setAttribute("aria-selected", String(isOpen === (index === 0))));
    if (this.#shown !== views.home) {
      this.#shown = views.home;
      this.blocks.update(views.home?.blocks ?? []);
      this.empty.hidden = Boolean(views.home);
    }
    return isOpen;
  }
}

/** The modal that the app shows to this person, as a dialog over the page. */
export class Modal {
  #session;
  #view = null;

  constructor(session) {
    this.#session = session;
    this.title = h("h2", {});
    this.problem = h("p", { class: "modal-problem", role: "alert", hidden: true });
    this.cancel = h("button", { type: "button", class: "plain-button", testid: "modal-close", onclick: () => session.closeModal(false) });
    this.submit = h("button", { type: "submit", class: "strong-button", testid: "modal-submit" });
    this.body = h("div", { class: "modal-body text" });
    const onsubmit = (event) => {
      event.preventDefault();
      this.#submit();
    };
    const header = h("header", {}, this.title, iconButton("close", "Close", () => session.closeModal(true), { "data-testid": "modal-clear" }));
    const form = h("form", { novalidate: true, onsubmit }, header, this.body, this.problem, h("footer", {}, this.cancel, this.submit));
    this.element = h("dialog", { class: "modal", testid: "modal" }, form);
    this.element.addEventListener("keydown", (event) => event.key === "Escape" && event.stopPropagation());
    this.element.addEventListener("cancel", (event) => {
      if (event.target !== this.element) return;
      event.preventDefault();
      session.closeModal(false);
    });
    document.body.append(this.element);
  }

  end() {
    this.element.remove();
  }

  update() {
    const { modal } = this.#session.views;
    if (modal === this.#view) return;
    const before = this.#view;
    this.#view = modal;
    if (!modal) {
      this.element.close();
      return;
    }
    if (modal.id !== before?.id) {
      this.blocks = new BlocksView(this.#session, pressing(this.#session, "modal", (error) => this.#fail(error)));
      this.body.replaceChildren(this.blocks.element);
    }
    this.#fail(null);
    this.title.replaceChildren(...plainText(modal.title.text));
    this.element.setAttribute("aria-label", plainWords(modal.title));
    this.cancel.replaceChildren(...plainText(modal.close?.text ?? "Cancel"));
    this.submit.replaceChildren(...plainText(modal.submit?.text ?? "Submit"));
    this.submit.hidden = !modal.submit && !modal.blocks.some((block) => block.type === "input");
    this.blocks.update(modal.blocks);
    if (!this.element.open) this.element.showModal();
    if (modal.id !== before?.id) this.body.querySelector("input, textarea, select")?.focus();
  }

  async #submit() {
    if (this.submit.hidden || this.submit.ariaBusy === "true") return;
    this.submit.ariaBusy = "true";
    this.#fail(null);
    try {
      await this.#session.submitModal(this.blocks.state);
    } catch (error) {
      this.#fail(error);
    } finally {
      this.submit.ariaBusy = null;
    }
  }

  /** Errors of inputs are shown under them, others above the buttons. */
  #fail(error) {
    const isOfInputs = ["missing_value", "invalid_input"].includes(error?.code);
    const rest = this.blocks.showErrors(isOfInputs ? error.details : []);
    const sentence = isOfInputs ? rest.join(" ") : (error?.message ?? "");
    this.problem.textContent = sentence;
    this.problem.hidden = !sentence;
  }
}
