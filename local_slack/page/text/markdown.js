import { h } from "../dom.js";
import { emoji, fence, link, reference, unescaped } from "./mrkdwn.js";

const LITERAL = /\\([!-/:-@[-`{-~])|(`+)([\s\S]*?[^`])\2(?!`)/g;
const FIRST_PLACE = 0xe000;
const PLACES = 6000;
const PLACE = /[\ue000-\uf76f]/;
const DEEPEST = 12;
const TOP_LEVEL = 3;
const LETTER = "\\p{L}\\p{N}";

const TOKEN = new RegExp(
  [
    "!?\\[(?<label>(?:\\[[^\\[\\]]*\\]|[^\\[\\]])*)\\]\\((?<url>(?:\\([^()\\s]*\\)|[^()\\s])*)(?:\\s+\"[^\"]*\")?\\)",
    "<(?<reference>[^<>\\n]+)>",
    "\\*{3}(?=[^\\s*])(?<both>[^*]+)(?<=\\S)\\*{3}",
    "\\*\\*(?=\\S)(?<bold>(?:[^*]|\\*(?!\\*))+?\\*?)(?<=\\S)\\*\\*(?!\\*)",
    `(?<![${LETTER}_])__(?=\\S)(?<bolder>(?:[^_]|_(?!_))+?)(?<=\\S)__(?![${LETTER}_])`,
    "\\*(?=[^\\s*])(?<italic>(?:\\*\\*[^*]+\\*\\*|[^*])+?)(?<=[^\\s])\\*(?!\\*)",
    `(?<![${LETTER}_])_(?=[^\\s_])(?<slanted>(?:[^_]|(?<=[${LETTER}])_+(?=[${LETTER}])|__[^_]+__)+?)(?<=\\S)_(?![${LETTER}_])`,
    "~~(?=\\S)(?<strike>[^~]+)(?<=\\S)~~",
    ":(?<emoji>[a-z0-9_+'-]+):",
    "(?<bare>https?:\\/\\/[^\\s<>]*[^\\s<>.,;:!?)\\]'\"*_~])",
  ].join("|"),
  "gu",
);

/** The Markdown within one line or paragraph as DOM nodes. Code and escapes are replaced by placeholders first, so that marks in them have no effect. */
function inline(text, directory) {
  const aside = [];
  const keep = (node) => {
    aside.push(node);
    return String.fromCharCode(FIRST_PLACE + aside.length - 1);
  };
  const setAside = (whole, escaped, _ticks, code) => {
    if (aside.length === PLACES) return whole;
    return keep(escaped ?? h("code", {}, unescaped(code.replaceAll("\n", " ").replace(/^ (.+) $/, "$1"))));
  };
  const marked = text.replace(new RegExp(PLACE, "g"), "\ufffd").replace(LITERAL, setAside);
  return nodes(marked, { directory, aside, depth: 0 });
}

function nodes(text, place) {
  if (place.depth > DEEPEST) return leaf(text, place);
  const deeper = { ...place, depth: place.depth + 1 };
  const out = [];
  let end = 0;
  for (const match of text.matchAll(TOKEN)) {
    out.push(...leaf(text.slice(end, match.index), place), token(match, deeper));
    end = match.index + match[0].length;
  }
  out.push(...leaf(text.slice(end), place));
  return out;
}

/** Plain text with the placeholders resolved. */
function leaf(text, { aside }) {
  const parts = text.split(/([\ue000-\uf76f])/).filter(Boolean);
  return parts.map((part) => (PLACE.test(part) ? aside[part.charCodeAt(0) - FIRST_PLACE] : unescaped(part)));
}

function token({ 0: whole, groups }, place) {
  const { directory } = place;
  if (groups.label !== undefined) return link(unescaped(address(groups.url, place)), nodes(groups.label, place));
  if (groups.reference) return reference(groups.reference, directory);
  if (groups.both) return h("strong", {}, h("em", {}, nodes(groups.both, place)));
  if (groups.bold ?? groups.bolder) return h("strong", {}, nodes(groups.bold ?? groups.bolder, place));
  if (groups.italic ?? groups.slanted) return h("em", {}, nodes(groups.italic ?? groups.slanted, place));
  if (groups.strike) return h("s", {}, nodes(groups.strike, place));
  if (groups.bare) return link(unescaped(groups.bare), unescaped(groups.bare));
  return emoji(groups.emoji) ?? whole;
}

/** An escaped character in an address is that character. */
const address = (url, place) => leaf(url, place).map((part) => part.textContent ?? part).join("");

const FENCE = /^ {0,3}(`{3,}|~{3,})[^`]*$/;
const HEADING = /^ {0,3}(#{1,6}) +(.*?)(?: +#+)? *$/;
const RULE = /^ {0,3}([-*_])(?: *\1){2,} *$/;
const QUOTE = /^ {0,3}> ?/;
const ITEM = /^( *)([-*+•]|\d{1,9}[.)])(?: +|$)/;
const TASK = /^\[([ xX])\] +/;
const DELIMITERS = /^ *\|? *:?-+:? *(?:\| *:?-+:? *)*\|? *$/;

/** Markdown, as a `markdown` block has it, as DOM nodes; a line break stays one, as in Slack. Text never becomes HTML. */
export function renderMarkdown(text, directory) {
  const lines = text.replaceAll("\r\n", "\n").split("\n").map((line) => line.replace(/^[ \t]+/, (indent) => indent.replaceAll("\t", "    ")));
  const nodes = blocks(lines, { directory, depth: 0 });
  alignHeadings(nodes);
  return nodes;
}

/** Headings are below those of the page, and none is more than one level below the one before. */
function alignHeadings(nodes) {
  let deepest = TOP_LEVEL;
  const isHeading = (node) => node.role === "heading";
  for (const heading of nodes.flatMap((node) => [node, ...node.querySelectorAll("[role=heading]")]).filter(isHeading)) {
    const level = Math.min(Number(heading.ariaLevel), deepest);
    heading.ariaLevel = String(level);
    deepest = Math.min(level + 1, 6);
  }
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
  return [h("p", { class: `heading-${Math.min(level, 3)}`, role: "heading", "aria-level": String(Math.min(level + TOP_LEVEL - 1, 6)) }, inline(found[2], directory)), at + 1];
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
