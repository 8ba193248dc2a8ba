import { h } from "../dom.js";
import { searchEmoji } from "../text/emoji.js";

let closeOpen = null;

/** Show the picker next to `anchor`; calls `onPick(name)` once. Esc and a click elsewhere close it. */
export function pickEmoji(anchor, onPick) {
  closeOpen?.();
  const grid = h("div", { class: "emoji-grid", role: "listbox", "aria-label": "Emoji" });
  const search = h("input", { type: "search", class: "search", placeholder: "Search emoji", "aria-label": "Search emoji", testid: "emoji-search" });
  const nothing = h("p", { class: "nothing", role: "status" });
  const picker = h("div", { class: "emoji-picker", role: "dialog", "aria-label": "Pick an emoji", testid: "emoji-picker" }, search, grid, nothing);
  const outside = (event) => picker.contains(event.target) || close();
  const keptVisible = anchor.closest(".message");

  function close() {
    picker.remove();
    keptVisible?.classList.remove("picking");
    removeEventListener("pointerdown", outside, true);
    closeOpen = null;
    if (anchor.isConnected) anchor.focus({ preventScroll: true });
  }
  function choose(name) {
    close();
    onPick(name);
  }
  const show = () => fill(grid, nothing, search.value, choose);

  search.addEventListener("input", show);
  picker.addEventListener("keydown", (event) => steer(event, grid, search, close));
  addEventListener("pointerdown", outside, true);
  keptVisible?.classList.add("picking");
  closeOpen = close;
  show();
  document.body.append(picker);
  place(picker, anchor);
  search.focus({ preventScroll: true });
}

function fill(grid, nothing, query, choose) {
  const buttons = searchEmoji(query).map(({ name, char }) =>
    h("button", { type: "button", role: "option", class: "emoji", title: `:${name}:`, "aria-label": name, testid: `emoji-${name}`, onclick: () => choose(name) }, char),
  );
  grid.replaceChildren(...buttons);
  grid.hidden = !buttons.length;
  nothing.textContent = buttons.length ? "" : "No emoji with that name.";
}

/** Arrow keys move in the grid; typed text goes to the search field. */
function steer(event, grid, search, close) {
  if (event.key === "Escape") {
    event.stopPropagation();
    close();
    return;
  }
  const cells = [...grid.querySelectorAll("button")];
  const at = cells.indexOf(document.activeElement);
  if (event.key === "Enter" && at < 0) {
    event.preventDefault();
    cells[0]?.click();
    return;
  }
  const perRow = cells.filter((cell) => cell.offsetTop === cells[0].offsetTop).length;
  const step = { ArrowRight: 1, ArrowLeft: -1, ArrowDown: perRow, ArrowUp: -perRow }[event.key];
  if (!step || (at < 0 && event.key !== "ArrowDown")) return;
  event.preventDefault();
  const next = at < 0 ? 0 : at + step;
  (next < 0 ? search : (cells[next] ?? cells[at])).focus();
}

/** Place the picker above or below the anchor, inside the window. */
function place(picker, anchor) {
  const margin = 8;
  const near = anchor.getBoundingClientRect();
  const { width, height } = picker.getBoundingClientRect();
  const above = near.top - height - margin;
  const top = above >= margin ? above : Math.min(near.bottom + margin, innerHeight - height - margin);
  const left = Math.min(Math.max(near.right - width, margin), innerWidth - width - margin);
  picker.style.top = `${Math.max(top, margin)}px`;
  picker.style.left = `${left}px`;
}
