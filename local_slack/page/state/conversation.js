export const isReply = (message) => Boolean(message.thread_ts) && message.thread_ts !== message.ts;
const byTime = (a, b) => (a.ts < b.ts ? -1 : a.ts > b.ts ? 1 : 0);

/** Whether the channel shows the message, not only a thread. */
export const inTimeline = (message) => !isReply(message) || message.subtype === "thread_broadcast";

const MAX_EARLY_CHANGES = 200;

/**
 * The loaded messages of one channel. A change makes a new message object, so views compare by identity.
 * Live events may arrive during a fetch: a message that an event changed after the fetch began wins over the page, and
 * edits, reactions and replies of a message that is not loaded yet are applied to it when its page arrives.
 */
export class Conversation {
  #authorId;
  #messages = new Map();
  #touched = new Map();
  #gone = new Set();
  #earlyChanges = [];
  #clock = 0;
  loaded = false;
  cursor = null;
  knownThreads = new Set();

  /** `authorId` returns the user id of a message's author: posts with a persona have the bot's second id only. */
  constructor(authorId) {
    this.#authorId = authorId;
  }

  /** A marker of the start of a fetch, for `merge`. */
  get now() {
    return this.#clock;
  }

  get(ts) {
    return this.#messages.get(ts) ?? null;
  }

  timeline() {
    return [...this.#messages.values()].filter(inTimeline).sort(byTime);
  }

  thread(rootTs) {
    const inside = (message) => message.ts === rootTs || message.thread_ts === rootTs;
    return [...this.#messages.values()].filter(inside).sort(byTime);
  }

  /** Merge a fetched page; `covers` returns whether the page would contain a known message, if it still existed. */
  merge(page, since, covers) {
    const fetched = new Set(page.map((message) => message.ts));
    const isNewer = (ts) => (this.#touched.get(ts) ?? 0) > since;
    for (const message of [...this.#messages.values()]) {
      const missing = covers(message) && !fetched.has(message.ts) && !message.is_ephemeral;
      if (missing && !isNewer(message.ts)) this.#messages.delete(message.ts);
    }
    for (const message of page) {
      if (this.#gone.has(message.ts) || isNewer(message.ts)) continue;
      this.#messages.set(message.ts, message);
      for (const { at, ts, changed } of this.#earlyChanges) {
        if (at > since && ts === message.ts) this.#set(changed(this.get(ts)));
      }
    }
    for (const message of [...this.#messages.values()]) {
      if (isReply(message) && !message.is_ephemeral && isNewer(message.ts)) this.#countReply(message);
    }
  }

  /** Add a posted message. Returns whether it is new. */
  post(message) {
    if (this.#gone.has(message.ts)) return false;
    const isNew = !this.#messages.has(message.ts);
    this.#set({ ...this.get(message.ts), ...message });
    if (isNew && isReply(message) && !message.is_ephemeral) this.#countReply(message);
    return isNew;
  }

  /** Apply an edit. Slack omits unchanged parts: reactions and thread counts are kept. */
  change(message) {
    this.#apply(message.ts, ({ reactions, reply_count, reply_users, latest_reply }) => ({ reactions, reply_count, reply_users, latest_reply, ...message }));
  }

  remove(ts, threadTs) {
    if (this.#gone.has(ts)) return;
    const message = this.get(ts);
    this.#gone.add(ts);
    this.#messages.delete(ts);
    const rootTs = message?.thread_ts ?? threadTs;
    if (rootTs && rootTs !== ts && !message?.is_ephemeral) this.#uncountReply(rootTs);
  }

  react({ user, reaction, item }, added) {
    this.#apply(item.ts, (message) => {
      const reactions = (message.reactions ?? []).map((each) => ({ ...each, users: [...each.users] }));
      const entry = reactions.find((each) => each.name === reaction) ?? { name: reaction, users: [] };
      if (!reactions.includes(entry)) reactions.push(entry);
      entry.users = entry.users.filter((id) => id !== user).concat(added ? [user] : []);
      entry.count = entry.users.length;
      return { ...message, reactions: reactions.filter((each) => each.count > 0) };
    });
  }

  /** Change a message now, or when its page arrives; `changed` returns the new message. */
  #apply(ts, changed) {
    const message = this.get(ts);
    if (message) return this.#set(changed(message));
    this.#clock += 1;
    this.#earlyChanges = [...this.#earlyChanges, { at: this.#clock, ts, changed }].slice(-MAX_EARLY_CHANGES);
  }

  #set(message) {
    this.#clock += 1;
    this.#touched.set(message.ts, this.#clock);
    this.#messages.set(message.ts, message);
  }

  /** Counts a reply in its root, unless the workspace has already counted it. */
  #countReply(reply) {
    const root = this.get(reply.thread_ts);
    if (!root || (root.latest_reply && root.latest_reply >= reply.ts)) return;
    const users = new Set([...(root.reply_users ?? []), this.#authorId(reply)]);
    this.#set({ ...root, thread_ts: root.ts, reply_count: (root.reply_count ?? 0) + 1, latest_reply: reply.ts, reply_users: [...users] });
  }

  #uncountReply(rootTs) {
    const root = this.get(rootTs);
    if (!root) return;
    const replies = this.thread(rootTs).slice(1).filter((each) => !each.is_ephemeral);
    const known = this.knownThreads.has(rootTs);
    const count = known ? replies.length : Math.max((root.reply_count ?? 1) - 1, 0);
    const latest = known ? replies.at(-1)?.ts : root.latest_reply;
    const users = known ? [...new Set(replies.map(this.#authorId))] : root.reply_users;
    this.#set({ ...root, reply_count: count, latest_reply: latest, reply_users: users });
  }
}
