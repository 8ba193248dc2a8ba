import { h, icon } from "./dom.js";

const UNITS = ["bytes", "KB", "MB", "GB"];

/** One file of a message; a click downloads it. */
export function fileRow(file, session) {
  if (file.mode === "tombstone") return h("span", { class: "unknown-block" }, "This file was deleted.");
  const name = file.title || file.name || "File";
  const detail = [name === file.name ? null : file.name, size(file.size)].filter(Boolean).join(" · ");
  return h(
    "a",
    { class: "file", testid: "file", href: session.fileUrl(file), download: file.name ?? "", title: `Download ${file.name ?? name}` },
    icon("file"),
    h("span", { class: "file-name" }, h("strong", {}, name), h("small", {}, detail)),
    icon("download"),
  );
}

/** "842 bytes", "1.4 KB", "13 MB". */
function size(bytes) {
  if (!Number.isFinite(bytes)) return "";
  const power = Math.min(Math.floor(Math.log(Math.max(bytes, 1)) / Math.log(1024)), UNITS.length - 1);
  const amount = bytes / 1024 ** power;
  return `${power && amount < 10 ? amount.toFixed(1) : Math.round(amount)} ${UNITS[power]}`;
}
