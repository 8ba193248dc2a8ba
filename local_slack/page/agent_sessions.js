/** The agent sessions, per thread: `status`, `title` and `text` ("is thinking…"). */
export class AgentSessions {
  #byThread = new Map();

  constructor(sessions = []) {
    for (const session of sessions) this.keep(session);
  }

  keep(session) {
    this.#byThread.set(keyOf(session.channel, session.thread_ts), session);
  }

  of(channelId, threadTs) {
    return this.#byThread.get(keyOf(channelId, threadTs)) ?? null;
  }
}

const keyOf = (channelId, threadTs) => `${channelId}/${threadTs}`;

/** Slack shows its Stop button while the agent works or waits. */
export const canStop = (session) => ["processing", "suspended"].includes(session?.status);
