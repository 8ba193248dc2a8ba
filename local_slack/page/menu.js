import { h } from "./dom.js";

/** A menu above or below its button; arrow keys move in it, Esc and loss of focus close it. */
export function menu({ name, label, note, options, button }) {
  const list = h("div", { class: "menu", role: "menu", "aria-label": label, hidden: true }, note ? h("p", { class: "menu-note" }, note) : null, options);
  const element = h("div", { class: name }, list, button);
  button.setAttribute("aria-haspopup", "menu");
  toggle(false);
  button.addEventListener("click", () => toggle(list.hidden));

  function toggle(open) {
    list.hidden = !open;
    button.setAttribute("aria-expanded", String(open));
    if (open) (list.querySelector("[aria-checked=true]") ?? options[0]).focus();
  }
  element.addEventListener("keydown", (event) => {
    if (list.hidden) return;
    if (event.key === "Escape") {
      event.stopPropagation();
      toggle(false);
      button.focus();
    }
    const step = { ArrowDown: 1, ArrowUp: -1 }[event.key];
    if (!step) return;
    event.preventDefault();
    const at = options.indexOf(document.activeElement);
    options.at((at + step) % options.length).focus();
  });
  element.addEventListener("focusout", (event) => element.contains(event.relatedTarget) || toggle(false));
  return { element, close: () => toggle(false) };
}
