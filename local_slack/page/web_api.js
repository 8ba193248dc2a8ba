const SENTENCES = {
  channel_not_found: "This conversation no longer exists.",
  not_in_channel: "You are not a member of this channel.",
  is_archived: "This channel is archived.",
  message_not_found: "This message no longer exists.",
  thread_not_found: "This thread no longer exists.",
  cant_update_message: "Only your own messages can be edited.",
  cant_delete_message: "Only your own messages can be deleted.",
  edit_window_closed: "This message can no longer be edited.",
  msg_too_long: "This message is too long: the limit is 40,000 characters.",
  no_text: "There is nothing to send.",
  invalid_auth: "The workspace does not know you. Reload the page.",
  not_authed: "The workspace does not know you. Reload the page.",
  invalid_name: "This emoji is unknown.",
  too_many_reactions: "This message has too many reactions.",
  ratelimited: "Rate limited. Try again in a moment.",
  not_connected: "The app is not connected.",
  no_such_action: "This button no longer exists.",
  no_answer: "The app did not respond within three seconds.",
  unreachable: "The workspace does not respond. Is it still running?",
};

export class ApiError extends Error {
  constructor(code) {
    super(SENTENCES[code] ?? `The call failed (${code}).`);
    this.code = code;
  }
}

/** Slack's Web API, called as one person. */
export class WebApi {
  #token;

  constructor(token) {
    this.#token = token;
  }

  /** Call `method`; a rate-limited call is repeated once after its delay. */
  async call(method, args = {}) {
    const response = await this.#post(method, args);
    if (response.status !== 429) return this.#read(response);
    const retryAfterS = Math.min(Number(response.headers.get("Retry-After")) || 1, 10);
    await new Promise((resolve) => setTimeout(resolve, retryAfterS * 1000));
    return this.#read(await this.#post(method, args));
  }

  /** Send an action to the app; a missing acknowledgement is an error. */
  async act(path, body) {
    const headers = { Authorization: `Bearer ${this.#token}`, "Content-Type": "application/json" };
    return this.#read(await this.#fetch(`/page/${path}`, headers, JSON.stringify(body)));
  }

  /** Form bodies, because Slack's read methods do not accept JSON. */
  async #post(method, args) {
    const given = Object.entries(args).filter(([, value]) => value !== undefined && value !== null);
    return this.#fetch(`/api/${method}`, { Authorization: `Bearer ${this.#token}` }, new URLSearchParams(given));
  }

  async #fetch(url, headers, body) {
    try {
      return await fetch(url, { method: "POST", headers, body });
    } catch {
      throw new ApiError("unreachable");
    }
  }

  async #read(response) {
    if (response.status === 429) throw new ApiError("ratelimited");
    let answer;
    try {
      answer = await response.json();
    } catch {
      throw new ApiError(`http_${response.status}`);
    }
    if (!answer.ok) throw new ApiError(answer.error ?? "unknown");
    return answer;
  }
}
