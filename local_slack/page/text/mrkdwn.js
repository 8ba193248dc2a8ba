import { h, icon } from "../dom.js";
import { dayName, fullTime, timeOfDay } from "./clock.js";
import { emojiFor } from "./emoji.js";

const CODE = /(```[\s\S]*?```|`[^`\n]+`)/;
const REFERENCE = /(https?:\/\/[^\s]+)|(?<![\p{L}\p{N}@.])@([\p{L}\p{N}._-]+)|(?<![\p{L}\p{N}])#([\p{L}\p{N}_-]+)/gu;
const EVERYBODY = new Set(["channel", "here", "everyone"]);

const escaped = (text) => text.replaceAll("&", "&amp;").replaceAll("<", "&lt;").replaceAll(">", "&gt;");
export const unescaped = (text) => text.replaceAll("&lt;", "<").replaceAll("&gt;", ">").replaceAll("&amp;", "&");

/** Encode typed text as Slack's composer does: escaped, with mentions, channels and links in angle brackets. */
export function encode(typed, directory) {
  const encodePart = (part, index) => (index % 2 ? escaped(part) : references(escaped(part), directory));
  return typed.trim().split(CODE).map(encodePart).join("");
}

function references(text, directory) {
  return text.replace(REFERENCE, (whole, url, user, channel) => {
    if (url) return autolink(url);
    if (user) return mention(user, directory) ?? whole;
    const found = directory.channelNamed(channel);
    return found ? `<#${found.id}|${found.name}>` : whole;
  });
}

/** Punctuation at the end of a link is not part of it. */
function autolink(url) {
  const [end] = url.match(/(?:[.,;:!?)\]'"*_~]|&gt;)*$/);
  return `<${url.slice(0, url.length - end.length)}>${end}`;
}

function mention(handle, directory) {
  const name = handle.replace(/[._-]+$/, "");
  const rest = handle.slice(name.length);
  if (EVERYBODY.has(name)) return `<!${name}>${rest}`;
  const user = directory.named(name);
  return user ? `<@${user.id}>${rest}` : null;
}

/** Decode a message to the text as typed, for the editor. */
export function decode(text, directory) {
  const typed = text.replace(/<([^<>\n]+)>/g, (whole, inside) => {
    const [target, label] = inside.split("|");
    if (target[0] === "@") return `@${directory.user(target.slice(1))?.name ?? label ?? target.slice(1)}`;
    if (target[0] === "#") return `#${directory.channel(target.slice(1))?.name ?? label ?? target.slice(1)}`;
    if (target[0] === "!") return `@${target.slice(1).split("^")[0]}`;
    return label && label !== target ? whole : target.replace(/^mailto:/, "");
  });
  return unescaped(typed);
}


const FENCE = /```([\s\S]*?)```/;
const QUOTE = /^(?:&gt;|>) ?/;
const ITEM = /^(\s*)([•◦▪‣]|-|\d{1,3}[.)])\s+(?=\S)/;

/** A formatted span: `<…>` and `code` inside count as one character, so that their underscores end no span. */
const span = (name, mark) =>
  `(?<![\\p{L}\\p{N}${mark}])${mark}(?=\\S)(?<${name}>(?:<[^<>\\n]*>|\`[^\`\\n]*\`|[^${mark}\\n<\`])+)(?<=\\S)${mark}(?![\\p{L}\\p{N}${mark}])`;

const INLINE = new RegExp(
  [
    "<(?<reference>[^<>\\n]+)>",
    "`(?<code>[^`\\n]+)`",
    span("bold", "\\*"),
    span("italic", "_"),
    span("strike", "~"),
    ":(?<emoji>[a-z0-9_+'-]+):(?::skin-tone-\\d:)?",
    "(?<url>https?:\\/\\/[^\\s<>]*[^\\s<>.,;:!?)\\]'\"*_~])",
  ].join("|"),
  "gu",
);

/** Slack's mrkdwn as DOM nodes. Message text never becomes HTML. `directory` names users and channels. */
export function render(text, directory) {
  return text.split(FENCE).flatMap((part, index) => {
    if (index % 2) return [fence(part)];
    return lines(part.replace(/^\n|\n$/g, ""), directory);
  });
}

/** The same as one plain line, for announcements and previews. */
export function plain(text, directory) {
  const holder = h("div", {}, render(text, directory));
  for (const button of holder.querySelectorAll("button.copy")) button.remove();
  return holder.textContent.replace(/\s+/g, " ").trim();
}

export function fence(code) {
  const text = unescaped(code.replace(/^\n/, "").replace(/\n$/, ""));
  const copy = async (event) => {
    const button = event.currentTarget;
    await navigator.clipboard?.writeText(text);
    button.classList.add("done");
    setTimeout(() => button.classList.remove("done"), 1200);
  };
  const button = h("button", { type: "button", class: "copy", "aria-label": "Copy code", title: "Copy", onclick: copy }, icon("copy"));
  return h("div", { class: "fence" }, h("pre", { tabindex: "0" }, h("code", {}, text)), button);
}

/** Lines of one kind make one block; a blank line becomes space above the next. */
function lines(text, directory) {
  if (!text) return [];
  const blocks = [];
  let gap = false;
  for (const line of text.split("\n")) {
    if (!line.trim()) {
      gap = true;
      continue;
    }
    const kind = QUOTE.test(line) ? "quote" : ITEM.test(line) ? "item" : "text";
    const last = blocks.at(-1);
    if (last && !gap && last.kind === kind && kind !== "item") last.lines.push(line);
    else blocks.push({ kind, gap, lines: [line] });
    gap = false;
  }
  return blocks.map((each) => block(each, directory));
}

function block({ kind, gap, lines: own }, directory) {
  const spaced = gap ? " gap" : "";
  if (kind === "item") return item(own[0], spaced, directory);
  const text = own.map((line) => (kind === "quote" ? line.replace(QUOTE, "") : line)).join("\n");
  return h(kind === "quote" ? "blockquote" : "p", { class: `line${spaced}` }, inline(`${text}\n`, directory));
}

function item(line, spaced, directory) {
  const [whole, indent, marker] = line.match(ITEM);
  const depth = Math.min(Math.floor(indent.length / 2), 4);
  const shown = marker === "-" ? "•" : marker;
  return h(
    "div",
    { class: `item${spaced}`, style: `--depth:${depth}` },
    h("span", { class: "marker" }, `${shown} `),
    h("span", { class: "line" }, inline(`${line.slice(whole.length)}\n`, directory)),
  );
}

function inline(text, directory) {
  const nodes = [];
  let end = 0;
  for (const match of text.matchAll(INLINE)) {
    if (match.index > end) nodes.push(unescaped(text.slice(end, match.index)));
    nodes.push(token(match, directory));
    end = match.index + match[0].length;
  }
  if (end < text.length) nodes.push(unescaped(text.slice(end)));
  return nodes;
}

function token({ 0: whole, groups }, directory) {
  if (groups.reference) return reference(groups.reference, directory);
  if (groups.code) return h("code", {}, unescaped(groups.code));
  if (groups.bold) return h("strong", {}, inline(groups.bold, directory));
  if (groups.italic) return h("em", {}, inline(groups.italic, directory));
  if (groups.strike) return h("s", {}, inline(groups.strike, directory));
  if (groups.url) return link(unescaped(groups.url), unescaped(groups.url));
  return emoji(groups.emoji) ?? whole;
}

/** The picture of this name, or null. */
export function emoji(name) {
  const char = emojiFor(name);
  return char && h("span", { class: "emoji", role: "img", "aria-label": name, title: `:${name}:` }, char);
}

/** The content of angle brackets: a mention, a channel or a link. */
export function reference(inside, directory) {
  const bar = inside.indexOf("|");
  const target = bar < 0 ? inside : inside.slice(0, bar);
  const label = bar < 0 ? null : unescaped(inside.slice(bar + 1));
  switch (target[0]) {
    case "@": return userMention(target.slice(1), label, directory);
    case "#": return channelMention(target.slice(1), label, directory);
    case "!": return target.startsWith("!date^") ? date(target, label) : h("span", { class: "mention everybody" }, special(target, label));
    default: return link(unescaped(target), label ?? unescaped(target).replace(/^mailto:/, ""));
  }
}

/** `<!date^seconds^format|fallback>`, in the time zone of the reader. */
function date(target, label) {
  const [, seconds, format = ""] = target.split("^");
  if (!/^\d{1,11}$/.test(seconds)) return label ?? target;
  const forms = { time: timeOfDay, time_secs: timeOfDay };
  const shown = format.replace(/\{(\w+)\}/g, (_, name) => (forms[name] ?? dayName)(seconds));
  return h("time", { title: fullTime(seconds) }, shown || fullTime(seconds));
}

function special(target, label) {
  const [kind] = target.slice(1).split("^");
  if (["channel", "here", "everyone"].includes(kind)) return `@${kind}`;
  return label ?? `@${kind}`;
}

export function userMention(id, label, directory) {
  const user = directory.user(id);
  const mine = id === directory.me.id ? " mine" : "";
  return h("span", { class: `mention${mine}`, dataset: { user: id } }, `@${user?.name ?? label ?? id}`);
}

export function channelMention(id, label, directory) {
  return h("span", { class: "mention", dataset: { channel: id } }, `#${directory.channel(id)?.name ?? label ?? id}`);
}

/** Only web and mail addresses become links; anything else stays text. `label` is text or nodes. */
export function link(url, label) {
  if (!/^(https?:\/\/|mailto:)/i.test(url)) return label === url ? `<${url}>` : h("span", {}, label, ` (${url})`);
  return h("a", { href: url, target: "_blank", rel: "noopener noreferrer nofollow", title: url }, label);
}

const NAME = /:([a-z0-9_+'-]+):/g;

export const isText = (value) => value?.type === "mrkdwn" || value?.type === "plain_text";

/** A text object as DOM nodes. */
export function textNodes({ type, text }, directory) {
  return type === "mrkdwn" ? render(text, directory) : [h("span", { class: "plain" }, plainText(text))];
}

/** Plain text: only emoji are replaced. */
export function plainText(text) {
  const parts = text.split(NAME);
  return parts.map((part, index) => (index % 2 ? (emoji(part) ?? `:${part}:`) : unescaped(part)));
}

/** A plain text without markup, for attributes. */
export const plainWords = ({ text }) => plainText(text).map((part) => part.textContent ?? part).join("");
