/** Up to where a person has read each conversation; kept in this browser. */
export class ReadMarks {
  #key;
  #read;
  #newest = new Map();

  constructor(personId) {
    this.#key = `local_slack.read.${personId}`;
    try {
      this.#read = JSON.parse(localStorage.getItem(this.#key)) ?? {};
    } catch {
      this.#read = {};
    }
  }

  /** Somebody else's message `ts` exists. */
  saw(channelId, ts) {
    if (ts > (this.#newest.get(channelId) ?? "")) this.#newest.set(channelId, ts);
  }

  isUnread(channelId) {
    return (this.#newest.get(channelId) ?? "") > (this.#read[channelId] ?? "");
  }

  /** Everything in the conversation has been seen. Returns whether that is news. */
  read(channelId) {
    const wasUnread = this.isUnread(channelId);
    this.#read[channelId] = `${(Date.now() / 1000).toFixed(6)}`;
    localStorage.setItem(this.#key, JSON.stringify(this.#read));
    return wasUnread;
  }
}
