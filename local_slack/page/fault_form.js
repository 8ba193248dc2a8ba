import { h } from "./dom.js";

const MOST = 1000;

/**
 * A form for a fault: "The next 3 … respond slowly, after 3 s". `kinds` come from fault_kinds.js, `subject` are the
 * nodes after the number, `onSubmit(fault)` gets the kind, its argument and the times.
 */
export class FaultForm {
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
