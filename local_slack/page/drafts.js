/** Unsent text per person and place, kept while the tab is open. */
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
