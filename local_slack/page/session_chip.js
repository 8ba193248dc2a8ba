import { canStop } from "./agent_sessions.js";
import { h, icon } from "./dom.js";

const WORDS = { processing: "Working", suspended: "Waiting for you", active: "Ready", closed: "Closed" };

/** The state of an agent session in the header of its thread, and Slack's Stop button. */
export class SessionChip {
  #shown = null;

  constructor(onStop) {
    this.state = h("span", { class: "session-state", testid: "session-state", role: "status" });
    this.button = h("button", { type: "button", class: "stop-button", testid: "stop-session", onclick: () => this.#stop(onStop) }, icon("stop"), "Stop");
    this.element = h("div", { class: "session-chip", testid: "session-chip", hidden: true }, this.state, this.button);
  }

  update(session) {
    const status = session?.status ?? "";
    if (status === this.#shown) return;
    this.#shown = status;
    this.element.hidden = !WORDS[status];
    this.element.dataset.status = status;
    this.state.textContent = WORDS[status] ?? "";
    this.button.hidden = !canStop(session);
  }

  async #stop(onStop) {
    if (this.button.ariaBusy === "true") return;
    this.button.ariaBusy = "true";
    await onStop();
    this.button.ariaBusy = null;
  }
}
