import { Conversation, inTimeline } from "./conversation.js";
import { Directory, authorOf } from "./directory.js";
import { EventSocket, WebApi } from "./network.js";
import { encode } from "../text/mrkdwn.js";

/** The agent sessions, per thread: `status`, `title`, `text` ("is thinking…") and suggested `prompts`. */
class AgentSessions {
  #byThread = new Map();

  constructor(sessions = []) {
    for (const session of sessions) this.keep(session);
  }

  keep(session) {
    this.#byThread.set(keyOf(session.channel, session.thread_ts), session);
  }

  get all() {
    return [...this.#byThread.values()];
  }

  of(channelId, threadTs) {
    return this.#byThread.get(keyOf(channelId, threadTs)) ?? null;
  }
}

const keyOf = (channelId, threadTs) => `${channelId}/${threadTs}`;

/** Whether the run that began with this direct message works in its thread. A bot may also work in the channel itself. */
export function worksInThread(session, channelId, message) {
  const bot = session.directory.botIn(session.directory.channel(channelId));
  return Boolean(session.agents.of(channelId, message.ts)?.status) || (message.reply_users ?? []).includes(bot?.id);
}

/** Slack shows its Stop button while the agent works or waits. */
export const canStop = (session) => ["processing", "suspended"].includes(session?.status);

/** The type of a file that becomes a code snippet, or null. */
const snippetType = (name) => /\.(c|cpp|css|go|java|js|json|py|rb|rs|sh|sql|ts|ya?ml)$/i.exec(name)?.[1].toLowerCase() ?? null;

/** Read position per person and conversation, kept in this browser. */
class ReadMarks {
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

const PAGE_SIZE = 60;
const THREAD_PAGE_SIZE = 999;

/** The state of the workspace that `?team=` names, by default the first one. */
export async function fetchState() {
  const response = await fetch(`/page/state.json${location.search}`, { cache: "no-store" });
  if (!response.ok) throw new Error(`state.json: HTTP ${response.status}`);
  return response.json();
}

/**
 * One person in the workspace: their data and actions. Owns all data of the page.
 * Fires `change` (coalesced), `connection`, `posted` (a live message, in `detail`) and `place`.
 */
export class Session extends EventTarget {
  #api;
  #conversations = new Map();
  #changeQueued = false;
  #wasUp = false;
  #openedApp = false;
  #lookedAt = null;
  #agentsSince = new AgentSessions();
  connected = false;
  channelId = null;
  threadTs = null;
  tab = "messages";
  views = { home: null, modal: null };

  constructor(state, person) {
    super();
    this.me = person;
    this.directory = new Directory(state, person);
    this.agents = new AgentSessions(state.sessions);
    this.marks = new ReadMarks(person.id);
    this.#api = new WebApi(person.token);
    this.socket = new EventSocket(person.token);
    this.firstConnected = new Promise((resolve) => this.socket.addEventListener("up", resolve, { once: true }));
    this.socket.addEventListener("up", ({ detail }) => this.#up(detail));
    this.socket.addEventListener("down", () => this.#setConnected(false));
    this.socket.addEventListener("event", ({ detail }) => this.#receive(detail));
  }

  close() {
    this.socket.close();
  }

  conversation(channelId) {
    const authorId = (message) => authorOf(message, this.directory).user?.id;
    if (!this.#conversations.has(channelId)) this.#conversations.set(channelId, new Conversation(authorId));
    return this.#conversations.get(channelId);
  }

  get channel() {
    return this.directory.channel(this.channelId);
  }

  async open(channelId, threadTs = null) {
    const moved = channelId !== this.channelId || threadTs !== this.threadTs;
    this.channelId = channelId;
    this.threadTs = threadTs;
    if (moved) this.tab = "messages";
    this.markRead();
    if (moved) this.dispatchEvent(new Event("place"));
    if (moved) this.#tellApp();
    this.changed();
    const loads = [];
    if (!this.conversation(channelId).loaded) loads.push(this.#loadHistory(channelId));
    if (threadTs && !this.conversation(channelId).knownThreads.has(threadTs)) loads.push(this.#loadThread(channelId, threadTs));
    await Promise.all(loads);
  }

  openThread(threadTs) {
    return this.open(this.channelId, threadTs);
  }

  /** The direct conversation with a user; the workspace creates it on first use. */
  async directChannel(userId) {
    const known = this.directory.directWith(userId);
    if (known) return known;
    const { channel } = await this.#api.call("conversations.open", { users: userId });
    this.directory.add({ name: "", ...channel, is_im: true, user: userId, members: [this.me.id, userId] });
    return this.directory.channel(channel.id);
  }

  /** Post what a person typed, or run it as a command. A message with files arrives as an event; both have no ts here. */
  async send(channelId, typed, { files = [], threadTs = null } = {}) {
    if (typed.startsWith("/") && !files.length) return void (await this.#command(channelId, typed, threadTs));
    if (files.length) return this.#share(channelId, typed, files, threadTs);
    const args = { channel: channelId, text: encode(typed, this.directory), thread_ts: threadTs };
    const { message, ts } = await this.#api.call("chat.postMessage", args);
    this.conversation(channelId).post({ ...message, ts, channel: channelId });
    this.changed();
    return ts;
  }

  /** Upload the files and share them in one message, as Slack's own clients do. */
  async #share(channelId, typed, files, threadTs) {
    const uploaded = [];
    for (const file of files) {
      const { upload_url: url, file_id: id } = await this.#api.call("files.getUploadURLExternal", { filename: file.name, length: file.size, snippet_type: snippetType(file.name) });
      await this.#api.upload(url, file);
      uploaded.push({ id, title: file.name });
    }
    const place = { channel_id: channelId, thread_ts: threadTs, initial_comment: encode(typed, this.directory) };
    await this.#api.call("files.completeUploadExternal", { files: JSON.stringify(uploaded), ...place });
  }

  /** Share a message with a comment; `to` is a channel or a user. */
  forward(channelId, ts, to, typed, threadTs = null) {
    return this.#api.act("forward", { channel: channelId, ts, to, text: encode(typed, this.directory), thread_ts: threadTs });
  }

  edit(channelId, ts, typed) {
    return this.#api.call("chat.update", { channel: channelId, ts, text: encode(typed, this.directory) });
  }

  delete(channelId, ts) {
    return this.#api.call("chat.delete", { channel: channelId, ts });
  }

  /** Press a button of a message, or choose in its menu; resolves when the app acknowledges it. */
  press(channelId, ts, action) {
    return this.#api.act("click", { channel: channelId, ts, ...action });
  }

  /** Press a button of the Home tab or of the modal (`place`), or choose in it. */
  pressIn(place, action) {
    return this.#api.act(`click_${place}`, { ...action, view_id: this.views[place]?.id });
  }

  /** Submit the modal with the values of its inputs, by block and action. */
  submitModal(state) {
    return this.#api.act("submit_view", { view_id: this.views.modal?.id, state });
  }

  /** Close the modal, with `clear` also those below it. It is closed even if the app does not acknowledge that. */
  closeModal(clear) {
    return this.#api.act("close_view", { view_id: this.views.modal?.id, clear }).catch(() => {});
  }

  /** Show the Home or the Messages tab of the app. */
  openTab(tab) {
    this.tab = tab;
    this.changed();
    this.#api.act("open_home", { tab }).catch(() => {});
  }

  #command(channelId, typed, threadTs = null) {
    return this.#api.act("command", { channel: channelId, text: encode(typed, this.directory), thread_ts: threadTs });
  }

  /** Use a shortcut, on a message unless it is global. */
  useShortcut(callbackId, channelId = null, ts = null) {
    return this.#api.act("shortcut", { callback_id: callbackId, channel: channelId, ts });
  }

  /** Press Slack's Stop button of an agent session. */
  stopSession(channelId, threadTs) {
    return this.#api.act("stop_session", { channel: channelId, thread_ts: threadTs });
  }

  fileUrl(file) {
    return `/page/files/${encodeURIComponent(file.id)}?token=${encodeURIComponent(this.me.token)}`;
  }

  hasMyReaction(channelId, ts, name) {
    const given = this.conversation(channelId).get(ts)?.reactions?.find((each) => each.name === name);
    return Boolean(given?.users.includes(this.me.id));
  }

  toggleReaction(channelId, ts, name) {
    return this.react(channelId, ts, name, !this.hasMyReaction(channelId, ts, name));
  }

  /** Add or remove my reaction. It is no error if a second tab was faster. */
  async react(channelId, ts, name, added) {
    try {
      await this.#api.call(added ? "reactions.add" : "reactions.remove", { channel: channelId, timestamp: ts, name });
    } catch (error) {
      if (!["already_reacted", "no_reaction"].includes(error.code)) throw error;
    }
  }

  async loadOlder(channelId) {
    const { cursor } = this.conversation(channelId);
    if (cursor) await this.#loadHistory(channelId, cursor);
  }

  markRead() {
    if (document.hidden || !this.channelId) return;
    if (this.marks.read(this.channelId)) this.changed();
  }

  /** Notify the views, once per batch of changes. */
  changed() {
    if (this.#changeQueued) return;
    this.#changeQueued = true;
    queueMicrotask(() => {
      this.#changeQueued = false;
      this.dispatchEvent(new Event("change"));
    });
  }

  /** Notify the app that its messages tab was opened, and then which channel is next to it; errors are ignored. */
  #tellApp() {
    const isApp = Boolean(this.directory.partnerOf(this.channel)?.is_bot);
    const isSeen = this.#openedApp && !this.channel?.is_im && this.channelId !== this.#lookedAt;
    if (isSeen) this.#lookedAt = this.channelId;
    this.#openedApp ||= isApp;
    if (isApp) this.#api.act("open_home", { tab: "messages" }).catch(() => {});
    else if (isSeen) this.#api.act("look_at", { channel: this.channelId }).catch(() => {});
  }

  async #loadHistory(channelId, cursor = null) {
    const conversation = this.conversation(channelId);
    const since = conversation.now;
    const answer = await this.#api.call("conversations.history", { channel: channelId, limit: PAGE_SIZE, cursor });
    const page = answer.messages;
    const oldest = answer.has_more ? (page.at(-1)?.ts ?? "0") : "0";
    conversation.merge(page, since, (message) => !cursor && inTimeline(message) && message.ts >= oldest);
    conversation.cursor = answer.response_metadata?.next_cursor || null;
    conversation.loaded = true;
    this.changed();
  }

  async #loadThread(channelId, ts) {
    const conversation = this.conversation(channelId);
    const since = conversation.now;
    const messages = [];
    let cursor = null;
    do {
      const answer = await this.#api.call("conversations.replies", { channel: channelId, ts, limit: THREAD_PAGE_SIZE, cursor });
      messages.push(...answer.messages);
      cursor = answer.response_metadata?.next_cursor || null;
    } while (cursor);
    conversation.merge(messages, since, (message) => message.thread_ts === ts);
    conversation.knownThreads.add(ts);
    this.changed();
  }

  /** After a gap, loaded data may be stale: mark all as not loaded, and reload what is on screen. */
  async #up(views) {
    this.views = views;
    this.#setConnected(true);
    if (!this.#wasUp) {
      this.#wasUp = true;
      return;
    }
    for (const conversation of this.#conversations.values()) {
      conversation.loaded = false;
      conversation.knownThreads.clear();
    }
    await Promise.allSettled([this.#refreshDirectory(), this.open(this.channelId, this.threadTs), this.loadUnread()]);
  }

  /** Changes of agent sessions may arrive during the fetch: they win over its answer. */
  async #refreshDirectory() {
    const since = (this.#agentsSince = new AgentSessions());
    const state = await fetchState();
    this.directory = new Directory(state, this.me);
    this.agents = new AgentSessions([...state.sessions, ...since.all]);
    this.changed();
  }

  /** Load the newest message of every conversation that is not open, for its unread mark. */
  async loadUnread() {
    for (const channel of this.directory.channels.filter((each) => this.directory.isMine(each))) {
      if (channel.id === this.channelId) continue;
      const { messages } = await this.#api.call("conversations.history", { channel: channel.id, limit: 1 });
      if (messages[0] && messages[0].user !== this.me.id) this.marks.saw(channel.id, messages[0].ts);
    }
    this.changed();
  }

  #setConnected(connected) {
    this.connected = connected;
    this.dispatchEvent(new Event("connection"));
  }

  #receive(event) {
    switch (event.type) {
      case "message": this.#receiveMessage(event); break;
      case "reaction_added":
      case "reaction_removed":
        this.conversation(event.item.channel).react(event, event.type === "reaction_added");
        break;
      case "im_created":
      case "channel_created": this.#refreshDirectory(); break;
      case "agent_session_changed":
        this.agents.keep(event);
        this.#agentsSince.keep(event);
        break;
      case "views_changed": this.views = event; break;
      case "bot_presence": this.directory.setPresence(event.online, event.bot_id ?? event.user); break;
      default: return;
    }
    this.changed();
  }

  #receiveMessage(event) {
    const conversation = this.conversation(event.channel);
    switch (event.subtype) {
      case "message_changed": conversation.change(event.message); break;
      case "message_deleted": conversation.remove(event.deleted_ts, event.previous_message?.thread_ts); break;
      case "message_replied": break;
      case "ephemeral": conversation.post({ ...event, is_ephemeral: true }); break;
      default:
        if (conversation.post(event)) this.#noticeNew(event);
    }
  }

  #noticeNew(message) {
    const known = this.directory.channel(message.channel);
    if (!known) this.#refreshDirectory();
    if (message.user !== this.me.id && this.#concernsMe(message)) this.marks.saw(message.channel, message.ts);
    if (message.channel === this.channelId) this.markRead();
    this.dispatchEvent(new CustomEvent("posted", { detail: message }));
  }

  /** Replies make a channel unread only for people that are in the thread or are mentioned. */
  #concernsMe(message) {
    if (!message.thread_ts || message.thread_ts === message.ts || this.directory.channel(message.channel)?.is_im) return true;
    const thread = this.conversation(message.channel).thread(message.thread_ts);
    return message.text?.includes(`<@${this.me.id}>`) || thread.some((each) => each.user === this.me.id);
  }
}
