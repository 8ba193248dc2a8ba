import { announce, h, narrow } from "./dom.js";
import { textOf } from "./messages/message_view.js";
import { ChannelPane } from "./panes/channel_pane.js";
import { openKeySheet, openQuickSwitcher } from "./panes/dialogs.js";
import { FaultPanel } from "./panes/fault_panel.js";
import { nextPerson } from "./panes/person_menu.js";
import { Sidebar } from "./panes/sidebar.js";
import { ThreadPane } from "./panes/thread_pane.js";
import { Tour } from "./panes/tour.js";
import { Modal } from "./panes/views.js";
import { authorOf, displayName } from "./state/directory.js";
import { Session, fetchState } from "./state/session.js";
import { plain } from "./text/mrkdwn.js";

/**
 * The current person and place of this tab, in the URL hash, so that two tabs can be two people:
 * `#/ana/general`, `#/ana/@alpha`, `#/ana/general/1732134567.000100`.
 */
function readAddress() {
  const [person, place, thread] = location.hash.replace(/^#\/?/, "").split("/").map(decodeURIComponent);
  return { person: person || null, place: place || null, thread: thread || null };
}

function addressOf({ person, place, thread }) {
  return `#/${[person, place, thread].filter(Boolean).map((part) => encodeURIComponent(part).replace("%40", "@")).join("/")}`;
}

/** With `replace` no history entry is added, so that Back skips the page's own corrections. */
function writeAddress(address, { replace = false } = {}) {
  const hash = addressOf(address);
  if (hash === location.hash) return;
  history[replace ? "replaceState" : "pushState"](null, "", hash);
}

const PERMALINK = /^https:\/\/[^/]+\.slack\.com\/archives\/(\w+)\/p(\d{10})(\d{6})(?:\?thread_ts=([\d.]+)&cid=\w+)?$/;
const REFRESH_TIMES_MS = 30_000;
const BANNER_DELAY_MS = 800;

/** The page of one person: three panes, a session, and the address of the tab. */
class WorkspacePage {
  #session;
  #app;
  #sent = new Set();
  #ending = new AbortController();
  #bannerTimer = null;
  #started = false;

  constructor(app, session, become) {
    this.#app = app;
    this.#session = session;
    const jump = () => openQuickSwitcher(session, this.actions);
    this.actions = { openChannel: (channel) => this.#go(channel), openDirect: (user) => this.#goDirect(user), become, jump, keys: openKeySheet, faults: () => this.faultPanel.toggle(), tour: session.directory.tour && (() => this.tour.toggle()) };
    this.sidebar = new Sidebar(session, this.actions);
    this.channelPane = new ChannelPane(session, { onBack: () => this.#view("sidebar"), onSent: (ts) => ts && this.#sent.add(ts), become });
    this.threadPane = new ThreadPane(session, { onClose: () => this.#closeThread(), become });
    this.modal = new Modal(session);
    this.faultPanel = new FaultPanel({ teamId: session.directory.team.id, channelName: (id) => this.#channelName(id), toggled: (open, any) => this.#faultsToggled(open, any) });
    this.tour = new Tour(session);
    this.banner = h("div", { class: "banner", role: "status", hidden: true, testid: "connection-banner" }, "Reconnecting…");
    const heading = h("h1", { class: "sr-only" }, session.directory.team.name);
    app.replaceChildren(heading, this.sidebar.element, this.channelPane.element, this.threadPane.element, this.faultPanel.element, this.tour.element, this.banner);
    if (app.classList.contains("with-faults")) this.faultPanel.toggle();
    this.#listen();
  }

  /** Open the place in the address, or the first channel. Events are received before data are loaded, so that none is missed. */
  async start() {
    await this.#session.firstConnected;
    const { place, thread } = readAddress();
    const named = await this.#channelAt(place);
    await this.#go(named ?? this.#session.directory.openChannels[0], named ? thread : null, { replace: true });
    this.#started = true;
    this.#showConnection();
    this.#session.loadUnread().catch(() => {});
    if (!narrow()) (this.#session.threadTs ? this.threadPane : this.channelPane).composer.focus();
  }

  close() {
    this.#ending.abort();
    clearTimeout(this.#bannerTimer);
    clearInterval(this.clock);
    this.faultPanel.end();
    this.modal.end();
    this.#session.close();
  }

  #listen() {
    const { signal } = this.#ending;
    const session = this.#session;
    session.addEventListener("change", () => this.#update(), { signal });
    session.addEventListener("place", () => this.#moved(), { signal });
    session.addEventListener("connection", () => this.#showConnection(), { signal });
    session.addEventListener("posted", ({ detail }) => this.#posted(detail), { signal });
    document.addEventListener("keydown", (event) => this.#key(event), { signal });
    document.addEventListener("visibilitychange", () => session.markRead(), { signal });
    addEventListener("popstate", () => this.#followAddress(), { signal });
    // A file that is dropped beside a composer must not replace the page.
    for (const name of ["dragover", "drop"]) addEventListener(name, (event) => event.preventDefault(), { signal });
    this.#app.addEventListener("click", (event) => this.#placeClicked(event), { signal });
    this.clock = setInterval(() => this.#update(), REFRESH_TIMES_MS);
  }

  #update() {
    this.sidebar.update();
    this.channelPane.update();
    this.threadPane.update();
    this.modal.update();
    this.tour.update();
    const { channel, directory, marks } = this.#session;
    const anyUnread = directory.channels.some((each) => each.id !== channel?.id && directory.isMine(each) && marks.isUnread(each.id));
    const place = channel ? directory.placeOf(channel) : "";
    document.title = `${anyUnread ? "• " : ""}${place.startsWith("@") ? place : `#${place}`} · ${directory.team.name}`;
  }

  async #go(channel, thread = null, { replace = false } = {}) {
    const { directory, me } = this.#session;
    this.#view(thread ? "thread" : "channel");
    writeAddress({ person: me.name, place: directory.placeOf(channel), thread }, { replace });
    this.sidebar.fail(null);
    this.channelPane.fail(null);
    try {
      await this.#session.open(channel.id, thread);
    } catch (error) {
      (thread ? this.threadPane : this.channelPane).fail(error);
    }
  }

  async #goDirect(user) {
    try {
      await this.#go(await this.#session.directChannel(user.id));
      if (!narrow()) this.channelPane.composer.focus();
    } catch (error) {
      this.sidebar.fail(error);
    }
  }

  async #channelAt(place) {
    const { directory } = this.#session;
    if (!place?.startsWith("@")) return place && directory.channelNamed(place);
    const user = directory.named(place.slice(1));
    return user && user.id !== this.#session.me.id ? this.#session.directChannel(user.id) : null;
  }

  async #followAddress() {
    const { person, place, thread } = readAddress();
    if (person !== this.#session.me.name) {
      this.actions.become({ name: person });
      return;
    }
    const channel = await this.#channelAt(place);
    if (channel) await this.#go(channel, thread, { replace: true });
  }

  /** Update panes and address after the session opened another place. */
  #moved() {
    const { channel, threadTs, directory, me } = this.#session;
    this.channelPane.moved();
    this.threadPane.moved();
    this.#app.classList.toggle("with-thread", Boolean(threadTs));
    this.#view(threadTs ? "thread" : "channel");
    const address = { person: me.name, place: directory.placeOf(channel), thread: threadTs };
    if (addressOf(address) !== location.hash) writeAddress(address);
  }

  #closeThread() {
    this.#go(this.#session.channel);
    this.channelPane.composer.focus();
  }

  #faultsToggled(open, any) {
    this.#app.classList.toggle("with-faults", open);
    this.sidebar.showFaults(open, any);
  }

  #channelName(channelId) {
    const channel = this.#session.directory.channel(channelId);
    if (!channel) return channelId;
    return channel.is_im ? "direct message" : `#${channel.name}`;
  }

  /** A narrow window shows one pane only: the focus moves along with it, but not into a field, which would open a keyboard on a phone. */
  #view(name) {
    this.#app.dataset.view = name;
    if (document.activeElement.checkVisibility()) return;
    const { element } = { sidebar: this.sidebar, channel: this.channelPane, thread: this.threadPane }[name];
    element.querySelector("[aria-current], .back")?.focus();
  }

  #posted(message) {
    const { channelId, me, directory } = this.#session;
    if (message.user === me.id) this.#sent.add(message.ts);
    if (message.channel !== channelId || message.user === me.id) return;
    announce(`${authorOf(message, directory).name}: ${plain(textOf(message), directory)}`);
    this.#showFirstAnswer(message);
  }

  /** The first answer to the person's newest message opens its thread, unless they are writing in another thread. */
  #showFirstAnswer(message) {
    const { directory, threadTs, channelId } = this.#session;
    const root = message.thread_ts;
    const isAnswer = root && root !== message.ts && authorOf(message, directory).isApp;
    if (!isAnswer || !this.#sent.delete(root) || threadTs === root || !this.threadPane.isIdle) return;
    const writing = this.channelPane.composer.value.trim() !== "";
    if (writing && narrow()) return;
    this.#session.open(channelId, root).catch((error) => this.threadPane.fail(error));
    if (!writing) this.threadPane.composer.focus();
  }

  #showConnection() {
    const { connected } = this.#session;
    clearTimeout(this.#bannerTimer);
    if (connected) this.banner.hidden = true;
    else this.#bannerTimer = setTimeout(() => { this.banner.hidden = false; }, BANNER_DELAY_MS);
    this.#app.dataset.ready = String(connected && this.#started);
  }

  /** Open the place of a mention, or of a link to a message. */
  #placeClicked(event) {
    const link = PERMALINK.exec(event.target.closest?.("a[href]")?.href ?? "");
    const linked = link && this.#session.directory.channel(link[1]);
    if (linked && !event.ctrlKey && !event.metaKey) {
      event.preventDefault();
      this.#go(linked, link[4] ?? `${link[2]}.${link[3]}`);
      return;
    }
    const mention = event.target.closest?.(".text .mention");
    if (!mention) return;
    const { directory, me } = this.#session;
    const channel = directory.channel(mention.dataset.channel);
    const user = directory.user(mention.dataset.user);
    if (channel) this.#go(channel);
    else if (user && user.id !== me.id) this.#goDirect(user);
  }

  #key(event) {
    if (event.defaultPrevented) return;
    const typing = event.target.matches?.("input, textarea");
    if ((event.ctrlKey || event.metaKey) && event.key.toLowerCase() === "k") {
      event.preventDefault();
      this.actions.jump();
    } else if ((event.ctrlKey || event.metaKey) && event.key === ".") {
      event.preventDefault();
      this.actions.faults();
    } else if (event.ctrlKey && event.key === "," && !document.querySelector("dialog[open]")) {
      event.preventDefault();
      this.actions.become(nextPerson(this.#session));
    } else if (event.key === "?" && !typing) {
      openKeySheet();
    } else if (event.key === "Escape" && this.#session.threadTs && !document.querySelector("dialog[open]")) {
      this.#closeThread();
    }
  }
}

const RETRY_MS = 1500;
const app = document.getElementById("app");
let page = null;

/** Show the workspace as the person in the address, by default the first one. */
async function begin() {
  app.dataset.ready = "false";
  const state = await untilAnswered();
  const { person: name, place, thread } = readAddress();
  const person = state.people.find((each) => each.name === name) ?? state.people[0];
  writeAddress({ person: person.name, place, thread }, { replace: true });
  page?.close();
  page = new WorkspacePage(app, new Session(state, person), become);
  await page.start();
}

/**
 * Switch to another person in the same place; the focus stays in the channel or the thread. A direct message is left, unless
 * the address already names this person.
 */
async function become(person) {
  const pane = ["channelPane", "threadPane"].find((name) => page[name].element.contains(document.activeElement));
  const address = readAddress();
  const isOthers = address.place?.startsWith("@") && address.person !== person.name;
  writeAddress(isOthers ? { person: person.name } : { ...address, person: person.name });
  await begin();
  if (pane) page[pane].composer.focus();
  announce(`You are ${displayName(person)}`);
}

async function untilAnswered() {
  for (;;) {
    try {
      return await fetchState();
    } catch {
      app.replaceChildren(h("p", { class: "starting", role: "status" }, "The workspace does not respond. Trying again…"));
      await new Promise((resolve) => setTimeout(resolve, RETRY_MS));
    }
  }
}

begin();
