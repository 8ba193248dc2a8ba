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
      this.dispatchEvent(new Event("up"));
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
