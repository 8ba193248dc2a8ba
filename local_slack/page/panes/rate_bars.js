import { h } from "../dom.js";

const TIGHT = 0.7;

/** Use of each rate limit: one bar per method, or per channel if the limit is per channel. */
export class RateBars {
  #rows = new Map();

  /** Limits apply per workspace; those of `teamId` are shown. */
  constructor(teamId, channelName) {
    this.teamId = teamId;
    this.channelName = channelName;
    this.element = h("ul", { class: "rate-bars", testid: "rate-bars" });
    this.empty = h("p", { class: "panel-note" }, "No limited calls in the last minute.");
  }

  update(limits) {
    const shown = limits.filter((each) => this.#isShown(each)).sort(byName);
    const keys = new Set(shown.map(keyOf));
    for (const [key, row] of this.#rows) {
      if (keys.has(key)) continue;
      row.element.remove();
      this.#rows.delete(key);
    }
    let before = null;
    for (const limit of shown) {
      const { element } = this.#row(limit);
      if (element.previousElementSibling !== before || !element.isConnected) before ? before.after(element) : this.element.prepend(element);
      before = element;
    }
    this.empty.hidden = shown.length > 0;
  }

  #isShown({ team, used, refused }) {
    return (!team || team === this.teamId) && (used > 0 || refused > 0);
  }

  #row(limit) {
    const key = keyOf(limit);
    if (!this.#rows.has(key)) this.#rows.set(key, new Row(limit.method, limit.channel ? this.channelName(limit.channel) : ""));
    const row = this.#rows.get(key);
    row.update(limit);
    return row;
  }
}

class Row {
  constructor(method, place) {
    this.numbers = h("span", { class: "numbers" });
    this.refused = h("span", { class: "refused", hidden: true });
    this.fill = h("span", {});
    this.bar = h("div", { class: "bar", role: "meter", "aria-label": method, "aria-valuemin": "0" }, this.fill);
    this.element = h("li", { testid: `rate-${method}` }, h("div", { class: "rate-head" }, h("code", {}, method), h("span", { class: "where" }, place), this.refused, this.numbers), this.bar);
  }

  update({ used, limit, per_s, channel, refused }) {
    const share = Math.min(used / limit, 1);
    const window = per_s === 60 ? "a minute" : `${Math.round(per_s)} s`;
    this.numbers.textContent = channel ? `${used} / ${limit}` : `${used} / ${limit} ${window}`;
    this.numbers.title = `${used} of ${limit} in ${window}`;
    this.refused.hidden = !refused || Boolean(channel);
    this.refused.textContent = `${refused} refused`;
    this.fill.style.width = `${share * 100}%`;
    this.bar.dataset.level = share >= 1 ? "full" : share >= TIGHT ? "tight" : "room";
    this.bar.setAttribute("aria-valuenow", String(used));
    this.bar.setAttribute("aria-valuemax", String(limit));
  }
}

const keyOf = ({ method, channel = "", limit }) => [method, channel, limit].join("|");
const byName = (a, b) => (keyOf(a) < keyOf(b) ? -1 : 1);
