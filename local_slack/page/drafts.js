/** Text that was typed and not sent, per person and place; lives as long as the tab. */
export class Drafts {
  #prefix;

  constructor(personId) {
    this.#prefix = `local_slack.draft.${personId}.`;
  }

  of(place) {
    return sessionStorage.getItem(this.#prefix + place) ?? "";
  }

  keep(place, text) {
    if (text) sessionStorage.setItem(this.#prefix + place, text);
    else sessionStorage.removeItem(this.#prefix + place);
  }
}
