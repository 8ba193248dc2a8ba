import { h, icon, iconButton } from "../dom.js";
import { RateBars } from "./rate_bars.js";
import { control } from "../state/network.js";

/**
 * The kinds of faults, with their texts. `argument` is the argument of a kind: its name in the API, unit and bounds.
 * `short` is the text of an active fault.
 */
const CALL_KINDS = [
  { kind: "error_response", words: "are refused with an error", argument: { name: "error", label: "Error", value: "internal_error", list: true }, short: (fault) => `refused: ${fault.error}` },
  { kind: "rate_limited", words: "are rate limited (429)", argument: { name: "retry_after_s", label: "Retry after", value: 5, least: 1, most: 3600, unit: "s" }, short: (fault) => `429, after ${fault.retry_after_s} s` },
  { kind: "server_error", words: "fail with an HTTP error (5xx)", argument: { name: "status", label: "HTTP status", value: 503, least: 400, most: 599 }, short: (fault) => `HTTP ${fault.status}` },
  { kind: "slow_response", words: "respond slowly", argument: { name: "delay_s", label: "Respond after", value: 3, least: 0, most: 600, step: "any", unit: "s" }, short: (fault) => `slow, ${fault.delay_s} s` },
  { kind: "drop_before_call", words: "lose the connection without effect", short: () => "connection lost, no effect" },
  { kind: "drop_after_call", words: "take effect, then lose the connection", short: () => "connection lost after the effect" },
];

const DELIVERY_KINDS = [
  { kind: "duplicated", words: "are delivered twice", short: () => "twice" },
  { kind: "delayed", words: "are delivered late", argument: { name: "behind", label: "Behind", value: 1, least: 1, most: 1000, unit: "later events" }, short: (fault) => `late, behind ${fault.behind}` },
  { kind: "dropped", words: "are lost at the first attempt", short: () => "lost at the first attempt" },
];

/** One line for each active fault: `[subject, fault, times]`. */
function linesOf({ calls = [], deliveries = [], frozen = false, enabled = true }) {
  const words = (kinds, fault) => kinds.find((each) => each.kind === fault.kind)?.short(fault) ?? fault.kind;
  const lines = calls.map((fault) => [fault.method, words(CALL_KINDS, fault), fault.times]);
  lines.push(...deliveries.map((fault) => ["Events", words(DELIVERY_KINDS, fault), fault.times]));
  if (frozen) lines.push(["Connections", "frozen: open and silent", null]);
  if (!enabled) lines.push(["Socket Mode", "switched off", null]);
  return lines;
}

const MOST = 1000;

/**
 * A form for a fault: "The next 3 … respond slowly, after 3 s". `kinds` are CALL_KINDS or DELIVERY_KINDS, `subject` are the
 * nodes after the number, `onSubmit(fault)` gets the kind, its argument and the times.
 */
class FaultForm {
  #kinds;
  #argument;

  constructor({ name, kinds, subject, errors = null, onSubmit }) {
    this.#kinds = kinds;
    this.times = h("input", { type: "number", min: "1", max: String(MOST), value: "1", required: true, class: "field short", "aria-label": "How many", testid: `${name}-times` });
    this.kind = h("select", { class: "field", "aria-label": "Fault", testid: `${name}-kind`, onchange: () => this.#showArgument(errors) }, kinds.map((each) => h("option", { value: each.kind }, each.words)));
    this.given = h("label", { class: "given", hidden: true });
    this.element = h(
      "form",
      { class: "fault-form", testid: name, onsubmit: (event) => this.#submit(event, onSubmit) },
      h("div", { class: "sentence" }, h("span", {}, "The next"), this.times, subject),
      h("div", { class: "sentence" }, this.kind),
      h("div", { class: "sentence" }, this.given, h("button", { type: "submit", class: "plain-button", testid: `${name}-on` }, "Add")),
    );
    this.#showArgument(errors);
  }

  get #chosen() {
    return this.#kinds.find((each) => each.kind === this.kind.value);
  }

  #showArgument(errors) {
    const { argument } = this.#chosen;
    this.given.hidden = !argument;
    this.#argument = argument && input(argument, errors);
    this.given.replaceChildren(...(argument ? [h("span", {}, argument.label), this.#argument, argument.unit ?? ""] : []));
  }

  #submit(event, onSubmit) {
    event.preventDefault();
    const { kind, argument } = this.#chosen;
    const value = argument && (argument.list ? this.#argument.value.trim() : Number(this.#argument.value));
    onSubmit({ kind, times: Number(this.times.value), ...(argument ? { [argument.name]: value } : {}) });
  }
}

function input({ name, value, list, least, most, step = "1" }, errors) {
  if (list) return h("input", { type: "text", class: "field", value, list: errors, required: true, autocomplete: "off", spellcheck: "false", testid: `argument-${name}` });
  return h("input", { type: "number", class: "field short", value: String(value), min: String(least), max: String(most), step, required: true, testid: `argument-${name}` });
}

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
    this.kill = h("button", { type: "button", class: "plain-button", testid: "kill-app", hidden: true, onclick: () => this.#do(() => control.switchOn({ app: "kill" })) }, "Kill and restart the app");
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
    this.kill.hidden = !state.can_kill;
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
      h("div", { class: "sentence buttons" }, this.#socketButton("Drop", { socket: "drop" }), this.#socketButton("Freeze", { socket: "freeze" }), this.enable, this.kill),
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
