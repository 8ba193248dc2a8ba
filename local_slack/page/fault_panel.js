import { control } from "./control_api.js";
import { h, icon, iconButton } from "./dom.js";
import { FaultForm } from "./fault_form.js";
import { CALL_KINDS, DELIVERY_KINDS, linesOf } from "./fault_kinds.js";
import { RateBars } from "./rate_bars.js";

const POLL_MS = 1000;
const GLANCE_MS = 5000;
const FIRST_METHOD = "chat.postMessage";

/** The panel for faults and rate limits. It polls while it is open, and slowly while a fault is active. */
export class FaultPanel {
  #timer = null;
  #opener = null;
  #lines = null;
  #methods = "";
  #isLost = false;
  #toggled;

  /** `toggled(open, any)` is called when it opens or closes; `any`: whether a fault is active. */
  constructor({ teamId, channelName, toggled }) {
    this.#toggled = toggled;
    this.title = h("h2", { tabindex: "-1" }, "Faults and limits");
    this.problem = h("p", { class: "problem", role: "alert", hidden: true });
    this.on = h("ul", { class: "faults-on", testid: "faults-on", "aria-label": "Active faults" });
    this.quiet = h("p", { class: "panel-note" }, "No active faults.");
    this.clear = h("button", { type: "button", class: "plain-button", testid: "clear-faults", hidden: true, onclick: () => this.#clear() }, "Clear all");
    this.method = h("select", { class: "field", "aria-label": "Method", testid: "fault-method" }, h("option", {}, FIRST_METHOD));
    this.errors = h("datalist", { id: "fault-errors" });
    this.reason = h("select", { class: "field", "aria-label": "Reason", testid: "disconnect-reason" });
    this.connections = h("p", { class: "panel-note" });
    this.enable = this.#socketButton("Enable Socket Mode", { socket: "enable" });
    this.bars = new RateBars(teamId, channelName);
    this.element = h(
      "aside",
      { class: "fault-panel", testid: "fault-panel", "aria-label": "Faults and limits", hidden: true, onkeydown: (event) => this.#key(event) },
      h("header", { class: "pane-header" }, h("div", { class: "pane-title" }, this.title), iconButton("close", "Close (Esc)", () => this.toggle(), { "data-testid": "close-faults" })),
      h("div", { class: "panel-body" }, this.problem, this.#nowOn(), this.#calls(), this.#deliveries(), this.#sockets(), this.#rates(), this.errors),
    );
  }

  get isOpen() {
    return !this.element.hidden;
  }

  toggle() {
    if (this.isOpen) this.#close();
    else this.#open();
  }

  /** Stop polling, before the page is removed. */
  end() {
    clearTimeout(this.#timer);
    this.#timer = null;
  }

  #open() {
    this.#opener = document.activeElement;
    this.element.hidden = false;
    this.#toggled(true);
    this.title.focus();
    this.#poll();
  }

  #close() {
    this.element.hidden = true;
    this.#toggled(false);
    this.#again();
    if (this.#opener?.isConnected) this.#opener.focus();
  }

  async #poll() {
    try {
      const [faults, limits] = await Promise.all([control.faults(), this.isOpen ? control.limits() : []]);
      if (this.isOpen) this.bars.update(limits);
      this.#show(faults);
      if (this.#isLost) this.#fail(null);
    } catch (error) {
      this.#fail(error);
      this.#isLost = true;
    }
    this.#again();
  }

  #again() {
    this.end();
    const delay = this.isOpen ? POLL_MS : this.on.childElementCount && GLANCE_MS;
    if (delay && this.element.isConnected) this.#timer = setTimeout(() => this.#poll(), delay);
  }

  /** Show the state that the response of a request contains. */
  async #do(act) {
    try {
      this.#show(await act());
      this.#fail(null);
    } catch (error) {
      this.#fail(error);
    }
  }

  #fail(error) {
    this.#isLost = false;
    this.problem.textContent = error?.message ?? "";
    this.problem.hidden = !error;
  }

  /** The button disappears with the faults; the focus stays in the panel. */
  async #clear() {
    await this.#do(() => control.clear());
    if (this.clear.hidden) this.title.focus();
  }

  #show(state) {
    this.#offer(state);
    const n = state.connections;
    this.connections.textContent = n === 1 ? "The app has 1 connection open." : `The app has ${n || "no"} connection${n ? "s" : ""} open.`;
    this.enable.hidden = state.enabled !== false;
    const lines = linesOf(state);
    const key = JSON.stringify(lines);
    if (key === this.#lines) return;
    this.#lines = key;
    this.on.replaceChildren(...lines.map(([what, fault, times]) => h("li", {}, h("code", {}, what), h("span", {}, fault), times && h("b", {}, `${times}×`))));
    this.quiet.hidden = lines.length > 0;
    this.clear.hidden = lines.length === 0;
    this.#toggled(this.isOpen, lines.length > 0);
  }

  /** Fill the choices once; they come from the workspace. */
  #offer({ methods, errors, reasons }) {
    if (this.#methods === String(methods)) return;
    this.#methods = String(methods);
    this.method.replaceChildren(...methods.map((name) => h("option", { selected: name === FIRST_METHOD }, name)));
    this.errors.replaceChildren(...errors.map((value) => h("option", { value })));
    this.reason.replaceChildren(...reasons.map((name) => h("option", {}, name)));
  }

  #nowOn() {
    return section("Active faults", this.quiet, this.on, this.clear);
  }

  #calls() {
    const onSubmit = (fault) => this.#do(() => control.switchOn({ method: this.method.value, ...fault }));
    const subject = [h("span", {}, "calls of"), this.method];
    return section("Calls", new FaultForm({ name: "call-fault", kinds: CALL_KINDS, subject, errors: "fault-errors", onSubmit }).element);
  }

  #deliveries() {
    const onSubmit = ({ kind, ...fault }) => this.#do(() => control.switchOn({ delivery: kind, ...fault }));
    return section("Events to the app", new FaultForm({ name: "delivery-fault", kinds: DELIVERY_KINDS, subject: h("span", {}, "events"), onSubmit }).element);
  }

  #sockets() {
    const disconnect = () => this.#do(() => control.switchOn({ socket: "disconnect", reason: this.reason.value }));
    return section(
      "Connections",
      this.connections,
      h("div", { class: "sentence" }, this.reason, h("button", { type: "button", class: "plain-button", testid: "disconnect", onclick: disconnect }, "Disconnect")),
      h("div", { class: "sentence buttons" }, this.#socketButton("Drop", { socket: "drop" }), this.#socketButton("Freeze", { socket: "freeze" }), this.enable),
    );
  }

  #socketButton(words, fault) {
    return h("button", { type: "button", class: "plain-button", testid: `socket-${fault.socket}`, onclick: () => this.#do(() => control.switchOn(fault)) }, words);
  }

  #rates() {
    const record = h("a", { class: "record", href: "/record.jsonl", download: "record.jsonl", testid: "record" }, icon("download"), "Download the record");
    return section("Rate limits", this.bars.empty, this.bars.element, record);
  }

  #key(event) {
    if (event.key !== "Escape") return;
    event.stopPropagation();
    event.preventDefault();
    this.#close();
  }
}

const section = (title, ...content) => h("section", {}, h("h3", {}, title), content);
