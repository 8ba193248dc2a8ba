/** Read position per person and conversation, kept in this browser. */
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

  /** Note the newest message `ts` of another author. */
  saw(channelId, ts) {
    if (ts > (this.#newest.get(channelId) ?? "")) this.#newest.set(channelId, ts);
  }

  isUnread(channelId) {
    return (this.#newest.get(channelId) ?? "") > (this.#read[channelId] ?? "");
  }

  /** Mark the conversation as read. Returns whether it was unread. */
  read(channelId) {
    const wasUnread = this.isUnread(channelId);
    this.#read[channelId] = `${(Date.now() / 1000).toFixed(6)}`;
    localStorage.setItem(this.#key, JSON.stringify(this.#read));
    return wasUnread;
  }
}
