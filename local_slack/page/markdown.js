import { h } from "./dom.js";
import { inline } from "./markdown_inline.js";
import { fence } from "./mrkdwn.js";

const FENCE = /^ {0,3}(`{3,}|~{3,})[^`]*$/;
const HEADING = /^ {0,3}(#{1,6}) +(.*?)(?: +#+)? *$/;
const RULE = /^ {0,3}([-*_])(?: *\1){2,} *$/;
const QUOTE = /^ {0,3}> ?/;
const ITEM = /^( *)([-*+•]|\d{1,9}[.)])(?: +|$)/;
const TASK = /^\[([ xX])\] +/;
const DELIMITERS = /^ *\|? *:?-+:? *(?:\| *:?-+:? *)*\|? *$/;
const DEEPEST = 12;

/** Markdown, as a `markdown` block has it, as DOM nodes; a line break stays one, as in Slack. Text never becomes HTML. */
export function renderMarkdown(text, directory) {
  const lines = text.replaceAll("\r\n", "\n").split("\n").map((line) => line.replace(/^[ \t]+/, (indent) => indent.replaceAll("\t", "    ")));
  return blocks(lines, { directory, depth: 0 });
}

/** A row of cells per line; the first is the head. Cells are lists of nodes, `aligns` words for `text-align`. */
export function table(rows, aligns) {
  const cell = (tag) => (nodes, at) => h(tag, { scope: tag === "th" ? "col" : null, class: aligns[at] ? `to-${aligns[at]}` : null }, nodes);
  const [head, ...body] = rows;
  return h(
    "div",
    { class: "table", role: "region", "aria-label": "Table", tabindex: "0" },
    h("table", {}, h("thead", {}, h("tr", {}, head.map(cell("th")))), h("tbody", {}, body.map((row) => h("tr", {}, row.map(cell("td")))))),
  );
}

/** Each parser consumes its block from line `at`: returns `[node, next line]`, or null. */
const READERS = [readFence, readHeading, readRule, readQuote, readTable, readList];

function blocks(lines, place) {
  const nodes = [];
  let at = 0;
  while (at < lines.length) {
    if (!lines[at].trim()) {
      at += 1;
      continue;
    }
    const [node, next] = read(lines, at, place) ?? readParagraph(lines, at, place);
    nodes.push(node);
    at = next;
  }
  return nodes;
}

function read(lines, at, place) {
  if (place.depth > DEEPEST) return null;
  for (const reader of READERS) {
    const found = reader(lines, at, place);
    if (found) return found;
  }
  return null;
}

const inside = (lines, place) => blocks(lines, { ...place, depth: place.depth + 1 });

function readFence(lines, at) {
  const mark = lines[at].match(FENCE)?.[1];
  if (!mark) return null;
  const closes = (line) => line.trim().startsWith(mark) && !line.trim().replaceAll(mark[0], "");
  const length = lines.slice(at + 1).findIndex(closes);
  const end = length < 0 ? lines.length : at + 1 + length;
  return [fence(lines.slice(at + 1, end).join("\n")), end + 1];
}

function readHeading(lines, at, { directory }) {
  const found = lines[at].match(HEADING);
  if (!found) return null;
  const level = found[1].length;
  return [h("p", { class: `heading-${Math.min(level, 3)}`, role: "heading", "aria-level": String(Math.min(level + 2, 6)) }, inline(found[2], directory)), at + 1];
}

function readRule(lines, at) {
  return RULE.test(lines[at]) ? [h("hr", {}), at + 1] : null;
}

function readQuote(lines, at, place) {
  if (!QUOTE.test(lines[at])) return null;
  let end = at;
  while (end < lines.length && QUOTE.test(lines[end])) end += 1;
  const quoted = lines.slice(at, end).map((line) => line.replace(QUOTE, ""));
  return [h("blockquote", {}, inside(quoted, place)), end];
}

function readTable(lines, at, { directory }) {
  if (!lines[at].includes("|") || !DELIMITERS.test(lines[at + 1] ?? "") || !lines[at + 1].includes("|")) return null;
  const head = cells(lines[at]);
  const aligns = cells(lines[at + 1]).map(alignment);
  if (head.length !== aligns.length) return null;
  let end = at + 2;
  while (end < lines.length && lines[end].trim() && lines[end].includes("|")) end += 1;
  const rows = [head, ...lines.slice(at + 2, end).map(cells)].map((row) => head.map((_, column) => inline(row[column] ?? "", directory)));
  return [table(rows, aligns), end];
}

const cells = (line) => line.trim().replace(/^\||(?<!\\)\|$/g, "").split(/(?<!\\)\|/).map((cell) => cell.trim());

function alignment(cell) {
  if (!cell.endsWith(":")) return "";
  return cell.startsWith(":") ? "center" : "right";
}

function readList(lines, at, place) {
  const first = lines[at].match(ITEM);
  if (!first) return null;
  const ordered = /\d/.test(first[2]);
  const items = [];
  let end = at;
  while (end < lines.length) {
    const found = lines[end].match(ITEM);
    if (!found || /\d/.test(found[2]) !== ordered || RULE.test(lines[end])) break;
    const next = itemEnd(lines, end, found[1].length);
    items.push(item(lines.slice(end, next), found[0].length, place));
    end = next;
  }
  return [h(ordered ? "ol" : "ul", { start: ordered ? parseInt(first[2], 10) : null }, items), end];
}

/** An item continues with deeper indented lines and with lines of its paragraph. */
function itemEnd(lines, at, indent) {
  let end = at + 1;
  while (end < lines.length) {
    const line = lines[end];
    if (!line.trim()) {
      const after = lines.slice(end).find((each) => each.trim());
      if (after === undefined || (indentOf(after) < indent + 2 && !ITEM.test(after))) break;
    } else if (indentOf(line) < indent + 2 && (begins(line) || !lines[end - 1].trim())) break;
    end += 1;
  }
  return end;
}

const indentOf = (line) => line.length - line.trimStart().length;
const begins = (line) => [ITEM, FENCE, HEADING, QUOTE, RULE].some((each) => each.test(line));

function item([first, ...rest], offset, place) {
  const text = first.slice(offset);
  const done = text.match(TASK)?.[1];
  const dedented = rest.map((line) => line.slice(Math.min(offset, indentOf(line))));
  const box = done && h("span", { class: "task", role: "img", "aria-label": done === " " ? "open" : "done" }, done === " " ? "☐" : "☑");
  return h("li", { class: done ? "task-item" : null }, box, inside([text.replace(TASK, ""), ...dedented], place));
}

function readParagraph(lines, at, { directory, depth }) {
  let end = at + 1;
  while (end < lines.length && lines[end].trim() && (depth > DEEPEST || !begins(lines[end]))) end += 1;
  const text = lines.slice(at, end).map((line) => line.trim().replace(/\\$/, "")).join("\n");
  return [h("p", { class: "line" }, inline(text, directory)), end];
}
