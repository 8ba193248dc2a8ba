/** The users and conversations of the workspace that one person can see. */
export class Directory {
  constructor(state, me) {
    this.team = state.team;
    this.teams = state.teams ?? [state.team];
    this.people = state.people;
    this.bots = state.bots.map((bot) => ({ ...bot, is_bot: true }));
    this.apps = (state.apps ?? []).map((app) => ({ ...app, is_bot: true }));
    this.channels = state.channels;
    this.startCommand = state.start_command;
    this.commands = state.commands ?? [];
    this.shortcuts = state.shortcuts ?? [];
    this.tour = state.tour ?? null;
    this.me = me;
  }

  get everyone() {
    return [...this.bots, ...this.people];
  }

  user(id) {
    return [...this.everyone, ...this.apps].find((user) => user.id === id || (user.bot_id && user.bot_id === id)) ?? null;
  }

  /** The bot or person with this handle, or with this one-word real name. */
  named(name) {
    const wanted = name.toLowerCase();
    const has = (key) => this.everyone.find((user) => user[key]?.toLowerCase() === wanted);
    return has("name") ?? has("real_name") ?? null;
  }

  channel(id) {
    return this.channels.find((channel) => channel.id === id) ?? null;
  }

  channelNamed(name) {
    return this.openChannels.find((channel) => channel.name === name) ?? null;
  }

  get openChannels() {
    const isSeen = ({ members }) => this.me.kind !== "single_channel_guest" || members.includes(this.me.id);
    return this.channels.filter((channel) => !channel.is_im && isSeen(channel));
  }

  /** The users that can receive direct messages, bots first. */
  get partners() {
    return this.everyone.filter((user) => user.id !== this.me.id);
  }

  directWith(userId) {
    return this.channels.find((channel) => channel.is_im && this.isMine(channel) && this.partnerOf(channel)?.id === userId) ?? null;
  }

  isMine(channel) {
    return !channel.is_im || !channel.members?.length || channel.members.includes(this.me.id);
  }

  partnerOf(channel) {
    if (!channel?.is_im) return null;
    const other = channel.members?.find((id) => id !== this.me.id);
    return this.user(other ?? channel.user);
  }

  /** The bot that answers in the conversation, or null. */
  botIn(channel) {
    const partner = this.partnerOf(channel);
    if (partner) return partner.is_bot ? partner : null;
    return this.bots.find((bot) => !channel.members?.length || channel.members.includes(bot.id)) ?? null;
  }

  add(channel) {
    if (!this.channel(channel.id)) this.channels.push(channel);
  }

  setPresence(online, id = null) {
    for (const bot of this.bots) {
      if (!id || bot.id === id || bot.bot_id === id) bot.online = online;
    }
  }

  /** The name of the conversation in the address bar. */
  placeOf(channel) {
    const partner = this.partnerOf(channel);
    return partner ? `@${partner.name}` : channel.name;
  }
}

export const displayName = (user) => user?.real_name || user?.name || "Someone";

/** A deleted root has no author. */
const NOBODY = Object.freeze({ user: null, emoji: null, name: "Deleted message", isApp: false, hasPersona: false, key: "" });

/** Name, picture and kind of the author of `message`; a persona has priority over its account. */
export function authorOf(message, directory) {
  if (message.subtype === "tombstone") return NOBODY;
  const user = directory.user(message.user) ?? directory.user(message.bot_id);
  const emoji = message.icons?.emoji?.replaceAll(":", "") ?? null;
  return {
    user,
    emoji,
    name: message.username || displayName(user),
    isApp: Boolean(message.bot_id || user?.is_bot),
    hasPersona: Boolean(message.username || emoji),
    key: [message.user ?? message.bot_id, message.username ?? "", emoji ?? ""].join("|"),
  };
}
