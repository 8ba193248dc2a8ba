import { calmMotion, h, icon } from "../dom.js";
import { MessageView } from "./message_view.js";
import { authorOf } from "../state/directory.js";
import { dayKey, dayName } from "../text/clock.js";

const GROUP_S = 5 * 60;
const BOTTOM_SLACK_PX = 40;
const TOP_PX = 160;

/**
 * A scrolling list of messages. `show` updates only the elements that differ from the data.
 * It stays at the bottom if the reader is there; otherwise a pill announces new messages.
 */
export class MessageList {
  #session;
  #inThread;
  #channelId = null;
  #key = null;
  #views = new Map();
  #days = new Map();
  #atBottom = true;
  #bottomTop = 0;

  constructor(session, { inThread = false, label, onTop = () => {} }) {
    this.#session = session;
    this.#inThread = inThread;
    this.before = h("div", { class: "list-before" });
    this.items = h("ol", { class: "messages", "aria-label": label });
    this.scroller = h("div", { class: "scroller" }, h("div", { class: "scrolled" }, this.before, this.items));
    this.pill = h("button", { type: "button", class: "new-pill", hidden: true, onclick: () => this.toBottom(true) }, "New messages", icon("down"));
    this.element = h("div", { class: "list" }, this.scroller, this.pill);
    this.scroller.addEventListener("scroll", () => this.#scrolled(onTop), { passive: true });
    this.items.addEventListener("keydown", (event) => this.#walk(event));
    this.sizes = new ResizeObserver(() => this.#atBottom && this.toBottom());
    this.sizes.observe(this.scroller);
    this.sizes.observe(this.scroller.firstChild);
  }

  /** `key` names the conversation; a new key starts at the bottom. `statusTs` is the status of an active run. */
  show(key, channelId, messages, statusTs = null) {
    const fresh = key !== this.#key;
    if (fresh) this.#reset(key, channelId);
    this.#noticeLeaving();
    const before = this.#edges();
    this.#remove(new Set(messages.map((message) => message.ts)));
    this.#place(messages, statusTs);
    this.#settle(before, messages, fresh);
  }

  toBottom(smooth = false) {
    this.#atBottom = true;
    this.pill.hidden = true;
    this.scroller.scrollTo({ top: this.scroller.scrollHeight, behavior: smooth && !calmMotion() ? "smooth" : "instant" });
    this.#bottomTop = this.scroller.scrollTop;
  }

  /** Open the editor of the newest message that can be edited. */
  editLastOwn() {
    const own = [...this.#views.values()].filter((view) => view.actions.canEdit);
    const newest = own.reduce((a, b) => (!a || b.message.ts > a.message.ts ? b : a), null);
    newest?.actions.edit();
  }

  /** Oldest and newest message on screen, and the scroll position. */
  #edges() {
    const shown = this.items.querySelectorAll(":scope > .message");
    const { scrollTop, scrollHeight } = this.scroller;
    return { oldest: shown[0]?.dataset.ts, newest: shown[shown.length - 1]?.dataset.ts, scrollTop, scrollHeight };
  }

  /** After a change: follow the bottom, keep the position under prepended history, or announce new messages. */
  #settle(before, messages, fresh) {
    const last = messages.at(-1);
    const isNews = !fresh && Boolean(before.newest) && last?.ts > before.newest;
    const isOwn = last?.user === this.#session.me.id;
    if (this.#atBottom || (isNews && isOwn)) return this.toBottom();
    if (messages[0]?.ts < before.oldest) this.scroller.scrollTop = before.scrollTop + this.scroller.scrollHeight - before.scrollHeight;
    if (isNews) this.pill.hidden = false;
  }

  #reset(key, channelId) {
    this.#key = key;
    this.#channelId = channelId;
    this.#views.clear();
    this.#days.clear();
    this.items.replaceChildren();
    this.#atBottom = true;
    this.#bottomTop = 0;
    this.pill.hidden = true;
  }

  #remove(wanted) {
    for (const [ts, view] of this.#views) {
      if (wanted.has(ts)) continue;
      this.#views.delete(ts);
      fadeOut(view.element);
    }
  }

  #place(messages, statusTs) {
    let cursor = this.items.firstElementChild;
    let previous = null;
    const put = (element) => {
      while (cursor?.classList.contains("leaving")) cursor = cursor.nextElementSibling;
      if (cursor === element) cursor = cursor.nextElementSibling;
      else this.items.insertBefore(element, cursor);
    };
    const days = new Set();
    for (const message of messages) {
      const newDay = !previous || dayKey(previous.ts) !== dayKey(message.ts);
      if (newDay && !(this.#inThread && !previous)) {
        days.add(dayKey(message.ts));
        put(this.#day(message.ts));
      }
      const view = this.#view(message);
      view.update(message, { compact: !newDay && this.#continues(previous, message), atWork: message.ts === statusTs });
      put(view.element);
      previous = message;
    }
    this.#dropDays(days);
    this.#keepOneTabStop();
  }

  #view(message) {
    if (!this.#views.has(message.ts)) {
      this.#views.set(message.ts, new MessageView(this.#session, this.#channelId, this.#inThread));
    }
    return this.#views.get(message.ts);
  }

  /** Same author within minutes; ephemeral messages are not grouped. In narrow threads the toolbar needs the space of a heading. */
  #continues(previous, message) {
    if (this.#inThread || !previous || message.is_ephemeral || previous.is_ephemeral || message.subtype || previous.subtype === "tombstone") return false;
    const { directory } = this.#session;
    return authorOf(previous, directory).key === authorOf(message, directory).key && message.ts - previous.ts < GROUP_S;
  }

  #day(ts) {
    const key = dayKey(ts);
    if (!this.#days.has(key)) this.#days.set(key, h("li", { class: "day" }, h("span", {})));
    const divider = this.#days.get(key);
    divider.firstChild.textContent = dayName(ts);
    return divider;
  }

  #dropDays(wanted) {
    for (const [key, divider] of this.#days) {
      if (wanted.has(key)) continue;
      divider.remove();
      this.#days.delete(key);
    }
  }

  get #distance() {
    const { scrollTop, scrollHeight, clientHeight } = this.scroller;
    return scrollHeight - scrollTop - clientHeight;
  }

  /** The reader has scrolled up, and the browser's scroll event is still pending. */
  #noticeLeaving() {
    if (this.scroller.scrollTop < this.#bottomTop && this.#distance >= BOTTOM_SLACK_PX) this.#atBottom = false;
  }

  #scrolled(onTop) {
    const { scrollTop, scrollHeight, clientHeight } = this.scroller;
    // Content may have grown since the scrolling to the bottom that this event reports.
    const isStill = this.#atBottom && scrollTop >= this.#bottomTop;
    this.#atBottom = isStill || this.#distance < BOTTOM_SLACK_PX;
    if (this.#atBottom) this.pill.hidden = true;
    if (scrollTop < TOP_PX && scrollHeight > clientHeight) onTop();
  }

  /** The list is one tab stop, at its newest message; arrow keys move from there. */
  #keepOneTabStop() {
    const shown = [...this.items.querySelectorAll(":scope > .message:not(.leaving)")];
    const current = shown.find((element) => element.contains(document.activeElement)) ?? shown.at(-1);
    for (const element of shown) element.tabIndex = element === current ? 0 : -1;
  }

  #walk(event) {
    if (!event.target.classList.contains("message")) return;
    const step = { ArrowUp: "previousElementSibling", ArrowDown: "nextElementSibling" }[event.key];
    if (!step) return;
    event.preventDefault();
    let next = event.target[step];
    while (next && !next.matches(".message:not(.leaving)")) next = next[step];
    next?.focus();
    this.#keepOneTabStop();
  }
}

function fadeOut(element) {
  if (calmMotion()) {
    element.remove();
    return;
  }
  element.classList.add("leaving");
  delete element.dataset.testid;
  const frames = [{ height: `${element.offsetHeight}px`, opacity: 1 }, { height: "0px", opacity: 0, paddingBlock: 0, marginBlock: 0 }];
  element.animate(frames, { duration: 220, easing: "ease-in-out" }).finished.finally(() => element.remove());
}
