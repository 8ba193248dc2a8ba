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
  no_modal: "This dialog is no longer open.",
  no_such_shortcut: "The app no longer has this shortcut.",
  no_answer: "The app did not respond within three seconds.",
  upload_failed: "The file was not uploaded. Has it changed? Choose it again.",
  unreachable: "The workspace does not respond. Is it still running?",
};

class ApiError extends Error {
  /** `details` are Slack's sentences, if it gives any. */
  constructor(code, details = []) {
    super(SENTENCES[code] ?? details[0] ?? `The call failed (${code}).`);
    this.code = code;
    this.details = details;
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

  /** Upload a file to the URL that `files.getUploadURLExternal` gave. */
  async upload(url, file) {
    const response = await fetch(new URL(url).pathname, { method: "POST", body: file }).catch(() => null);
    if (!response?.ok) throw new ApiError("upload_failed");
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
    if (!answer.ok) throw new ApiError(answer.error ?? "unknown", answer.response_metadata?.messages);
    return answer;
  }
}

const FIRST_DELAY_MS = 400;
const LONGEST_DELAY_MS = 15_000;

/** The workspace's live events. Reconnects until closed; `hello` arrives after every connection. */
export class EventSocket extends EventTarget {
  #url;
  #socket = null;
  #failures = 0;
  #timer = null;
  #closed = false;
  #wake = () => this.#tryNow();

  constructor(token) {
    super();
    const scheme = location.protocol === "https:" ? "wss" : "ws";
    this.#url = `${scheme}://${location.host}/page/events?token=${encodeURIComponent(token)}`;
    addEventListener("online", this.#wake);
    document.addEventListener("visibilitychange", this.#wake);
    this.#connect();
  }

  close() {
    this.#closed = true;
    clearTimeout(this.#timer);
    removeEventListener("online", this.#wake);
    document.removeEventListener("visibilitychange", this.#wake);
    this.#socket?.close();
  }

  #connect() {
    this.#timer = null;
    const socket = new WebSocket(this.#url);
    this.#socket = socket;
    socket.onmessage = ({ data }) => this.#receive(JSON.parse(data));
    socket.onclose = () => this.#lost();
  }

  #receive(event) {
    if (this.#closed) return;
    if (event.type === "hello") {
      this.#failures = 0;
      this.dispatchEvent(new CustomEvent("up", { detail: event }));
    } else {
      this.dispatchEvent(new CustomEvent("event", { detail: event }));
    }
  }

  #lost() {
    if (this.#closed) return;
    if (this.#failures === 0) this.dispatchEvent(new Event("down"));
    const longest = Math.min(FIRST_DELAY_MS * 2 ** this.#failures, LONGEST_DELAY_MS);
    this.#failures += 1;
    this.#timer = setTimeout(() => this.#connect(), longest * (0.5 + Math.random() / 2));
  }

  /** Reconnect now: the network or the tab is back. */
  #tryNow() {
    if (this.#closed || this.#timer === null || document.hidden) return;
    clearTimeout(this.#timer);
    this.#connect();
  }
}

/** Client of the control API, which Slack does not have. */
async function ask(path, method = "GET", body = undefined) {
  const headers = body ? { "Content-Type": "application/json" } : {};
  let response;
  try {
    response = await fetch(path, { method, headers, body: body && JSON.stringify(body), cache: "no-store" });
  } catch {
    throw new Error("The workspace does not respond. Is it still running?");
  }
  const answer = await response.json().catch(() => ({ error: `The workspace responded with HTTP ${response.status}.` }));
  if (!response.ok) throw new Error(answer.error);
  return answer;
}

export const control = {
  faults: () => ask("/faults"),
  switchOn: (fault) => ask("/faults", "POST", fault),
  clear: () => ask("/faults", "DELETE"),
  limits: () => ask("/limits"),
};
