import { COMMON_COUNT, TABLE } from "./emoji_table.js";

/** `{name, names, char}`, in the picker's order. */
export const EMOJI = TABLE.trim().split(/[|\n]/).map((entry) => {
  const space = entry.lastIndexOf(" ");
  const names = entry.slice(0, space).split(",");
  return { name: names[0], names, char: entry.slice(space + 1) };
});

export const COMMON = EMOJI.slice(0, COMMON_COUNT);

/** The quick reactions of a message's toolbar. */
export const QUICK = ["+1", "heart", "joy", "eyes", "white_check_mark", "x"];

const byName = new Map(EMOJI.flatMap((emoji) => emoji.names.map((name) => [name, emoji.char])));

/** The character for a name with or without colons and skin tone, or null. */
export function emojiFor(name) {
  return byName.get(name.replace(/^:|:$/g, "").split("::")[0]) ?? null;
}

/** Names that begin with the query come before names that only contain it. */
export function searchEmoji(query) {
  const wanted = query.trim().toLowerCase().replace(/^:|:$/g, "").replaceAll(" ", "_");
  if (!wanted) return COMMON;
  const rank = ({ names }) => (names.some((name) => name.startsWith(wanted)) ? 0 : names.some((name) => name.includes(wanted)) ? 1 : 2);
  return EMOJI.filter((emoji) => rank(emoji) < 2).sort((a, b) => rank(a) - rank(b));
}
