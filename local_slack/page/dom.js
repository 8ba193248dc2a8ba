/** Build an element: properties first (`onclick` style listeners, `dataset`, attributes), then children. */
export function h(tag, props = {}, ...children) {
  const element = document.createElement(tag);
  for (const [name, value] of Object.entries(props)) setProperty(element, name, value);
  element.append(...children.flat().filter((child) => child !== null && child !== undefined && child !== false));
  return element;
}

function setProperty(element, name, value) {
  if (value === null || value === undefined || value === false) return;
  if (typeof value === "function") element.addEventListener(name.slice(2), value);
  else if (name === "dataset") Object.assign(element.dataset, value);
  else if (name === "testid") element.dataset.testid = value;
  else if (name === "style") element.style.cssText = value;
  else element.setAttribute(name, value === true ? "" : value);
}

/** Icons are strokes on a 24 × 24 grid. */
const STROKES = {
  hash: "M9.5 4 7.5 20 M16.5 4l-2 16 M4.5 9h16 M3.5 15h16",
  back: "M15 5l-7 7 7 7",
  close: "M6 6l12 12 M18 6L6 18",
  smile: "M12 3.5a8.5 8.5 0 1 0 0 17 8.5 8.5 0 0 0 0-17z M8.5 14.2c.8 1.2 2 1.9 3.5 1.9s2.7-.7 3.5-1.9 M9.2 9.7v.2 M14.8 9.7v.2",
  reply: "M5 6.5A2.5 2.5 0 0 1 7.5 4h9A2.5 2.5 0 0 1 19 6.5v6a2.5 2.5 0 0 1-2.5 2.5H12l-4.5 4v-4A2.5 2.5 0 0 1 5 12.5z",
  share: "M13 5l6.5 6.5L13 18v-4c-4 0-6.500 1.200-8.500 4.500 .5-5.500 3-9 8.500-9.500z",
  pencil: "M4.5 19.5l1-4L16 5l3 3L8.5 18.5z M14 7l3 3",
  trash: "M5 7h14 M9.5 7V4.8h5V7 M7 7l.8 12.5h8.4L17 7 M10.5 10.5v5.5 M13.5 10.5v5.5",
  send: "M5 12h13 M12.5 6l6 6-6 6",
  at: "M12 8.5a3.5 3.5 0 1 0 0 7 3.5 3.5 0 0 0 0-7z M15.5 8.5v4.7c0 3 4.5 3 4.5-1.2a8 8 0 1 0-3.2 6.4",
  search: "M10.5 4.5a6 6 0 1 0 0 12 6 6 0 0 0 0-12z M15 15l5 5",
  plus: "M12 5v14 M5 12h14",
  chevron: "M8 10l4 4 4-4",
  down: "M12 5v14 M6 13l6 6 6-6",
  check: "M5 12.5l4.5 4.5L19 7.5",
  keys: "M4 7h16v10H4z M7.5 10.5v.1 M11 10.5v.1 M14.5 10.5v.1 M8.5 14h7",
  dots: "M6 12v.1 M12 12v.1 M18 12v.1",
  image: "M4.5 5h15v14h-15z M8.5 9v.1 M5 17l4.5-4.5 3 3 3-3.5 4 5",
  file: "M6.5 3.5h7.5l4.5 4.5v12.5h-12z M13.5 3.5v5h5",
  download: "M12 4v11 M7 10.5l5 5 5-5 M5 19.5h14",
  bolt: "M13 3.5L5.5 13.5h5.5l-1 7 8-10.5h-5.5z",
  stop: "M7 7h10v10H7z",
  clip: "M8.5 12.5l6-6a2.6 2.6 0 0 1 3.7 3.7l-8 8a4.4 4.4 0 0 1-6.2-6.2l7.8-7.8",
  compass: "M12 3.5a8.5 8.5 0 1 0 0 17 8.5 8.5 0 0 0 0-17z M15.5 8.5l-2 5-5 2 2-5z",
  copy: "M9 9h10v11H9z M15 9V4H5v11h4",
};

const SVG = "http://www.w3.org/2000/svg";

export function icon(name) {
  const svg = document.createElementNS(SVG, "svg");
  svg.setAttribute("viewBox", "0 0 24 24");
  svg.setAttribute("class", "icon");
  svg.setAttribute("aria-hidden", "true");
  const path = document.createElementNS(SVG, "path");
  path.setAttribute("d", STROKES[name]);
  svg.append(path);
  return svg;
}

/** A button whose only content is an icon; the label is its accessible name and its tooltip. */
export function iconButton(name, label, onclick, props = {}) {
  return h("button", { type: "button", class: "icon-button", "aria-label": label, title: label, onclick, ...props }, icon(name));
}

export const calmMotion = () => matchMedia("(prefers-reduced-motion: reduce)").matches;

export const narrow = () => matchMedia("(max-width: 899px)").matches;

let announcing;

/** Announce a text to screen readers without moving the focus. */
export function announce(text) {
  const region = document.getElementById("announcer");
  region.textContent = "";
  clearTimeout(announcing);
  announcing = setTimeout(() => { region.textContent = text; }, 60);
}

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
