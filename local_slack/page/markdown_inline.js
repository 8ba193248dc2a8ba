import { emoji, link, reference } from "./mrkdwn.js";
import { unescaped } from "./encode.js";
import { h } from "./dom.js";

const LITERAL = /\\([!-/:-@[-`{-~])|(`+)([\s\S]*?[^`])\2(?!`)/g;
const FIRST_PLACE = 0xe000;
const PLACES = 6000;
const PLACE = /[\ue000-\uf76f]/;
const DEEPEST = 12;
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
export function inline(text, directory) {
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
