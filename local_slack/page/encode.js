const CODE = /(```[\s\S]*?```|`[^`\n]+`)/;
const REFERENCE = /(https?:\/\/[^\s]+)|(?<![\p{L}\p{N}@.])@([\p{L}\p{N}._-]+)|(?<![\p{L}\p{N}])#([\p{L}\p{N}_-]+)/gu;
const EVERYBODY = new Set(["channel", "here", "everyone"]);

const escaped = (text) => text.replaceAll("&", "&amp;").replaceAll("<", "&lt;").replaceAll(">", "&gt;");
const unescaped = (text) => text.replaceAll("&lt;", "<").replaceAll("&gt;", ">").replaceAll("&amp;", "&");

/** Encode typed text as Slack's composer does: escaped, with mentions, channels and links in angle brackets. */
export function encode(typed, directory) {
  const encodePart = (part, index) => (index % 2 ? escaped(part) : references(escaped(part), directory));
  return typed.trim().split(CODE).map(encodePart).join("");
}

function references(text, directory) {
  return text.replace(REFERENCE, (whole, url, user, channel) => {
    if (url) return link(url);
    if (user) return mention(user, directory) ?? whole;
    const found = directory.channelNamed(channel);
    return found ? `<#${found.id}|${found.name}>` : whole;
  });
}

/** Punctuation at the end of a link is not part of it. */
function link(url) {
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

export { unescaped };
