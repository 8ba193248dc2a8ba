import { h, iconButton } from "./dom.js";
import { showDialog } from "./quick_switcher.js";

const KEYS = [
  ["Enter", "send"],
  ["Shift Enter", "new line"],
  ["↑", "edit your last message (in an empty field)"],
  ["@", "mention; Tab or Enter inserts the suggestion"],
  ["Ctrl K", "jump to a channel or a person (⌘K on a Mac)"],
  ["Ctrl .", "open faults and limits"],
  ["↑ ↓", "move between messages; Tab reaches their actions"],
  ["Esc", "close the open panel or dialog"],
  ["?", "show these shortcuts"],
];

export function openKeySheet() {
  if (document.querySelector("dialog[open]")) return;
  const rows = KEYS.flatMap(([keys, meaning]) => [h("dt", {}, keys.split(" ").map((key) => h("kbd", {}, key))), h("dd", {}, meaning)]);
  const dialog = h("dialog", { class: "key-sheet", testid: "key-sheet", "aria-label": "Keyboard shortcuts" });
  dialog.append(h("header", {}, h("h2", {}, "Keyboard"), iconButton("close", "Close", () => dialog.close())), h("dl", {}, rows));
  showDialog(dialog);
}
