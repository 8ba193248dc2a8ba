import { displayName } from "./directory.js";
import { calmMotion, h } from "./dom.js";
import { emojiFor } from "./emoji.js";

/** The reactions of a message; each is a button that adds or removes the person's own. */
export class Reactions {
  #session;
  #channelId;
  #onError;
  #chips = new Map();
  #message = null;

  constructor(session, channelId, onError) {
    this.#session = session;
    this.#channelId = channelId;
    this.#onError = onError;
    this.element = h("div", { class: "reactions", role: "group", "aria-label": "Reactions" });
  }

  /** `live` lets new ones pop in. */
  update(message, live) {
    this.#message = message;
    const reactions = message.reactions ?? [];
    const names = new Set(reactions.map((each) => each.name));
    for (const [name, chip] of this.#chips) {
      if (names.has(name)) continue;
      chip.remove();
      this.#chips.delete(name);
    }
    for (const reaction of reactions) this.#show(reaction, live);
    this.element.hidden = reactions.length === 0;
  }

  async toggle(name) {
    try {
      await this.#session.toggleReaction(this.#channelId, this.#message.ts, name);
    } catch (error) {
      this.#onError(error);
    }
  }

  #show(reaction, live) {
    const { name, users } = reaction;
    const count = String(reaction.count ?? users.length);
    let chip = this.#chips.get(name);
    if (!chip) {
      chip = this.#newChip(name);
      this.#chips.set(name, chip);
      this.element.append(chip);
      if (live) pop(chip);
    }
    const who = users.map((id) => displayName(this.#session.directory.user(id))).join(", ");
    chip.dataset.count = count;
    chip.setAttribute("aria-pressed", String(users.includes(this.#session.me.id)));
    chip.setAttribute("aria-label", `${name}, ${count}: ${who}`);
    chip.title = `${who} reacted with :${name}:`;
    chip.lastChild.textContent = count;
  }

  #newChip(name) {
    return h(
      "button",
      { type: "button", class: "reaction", testid: `reaction-${name}`, onclick: () => this.toggle(name) },
      h("span", { class: "emoji" }, emojiFor(name) ?? `:${name}:`),
      h("span", { class: "count" }),
    );
  }
}

function pop(chip) {
  if (calmMotion()) return;
  chip.animate([{ transform: "scale(0.5)", opacity: 0 }, { transform: "scale(1.12)", opacity: 1, offset: 0.7 }, { transform: "scale(1)" }], {
    duration: 240,
    easing: "ease-out",
  });
}
