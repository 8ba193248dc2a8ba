import { h } from "./dom.js";
import { unescaped } from "./encode.js";
import { emoji, render } from "./mrkdwn.js";

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
