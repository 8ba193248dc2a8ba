import { h, icon, iconButton, menu } from "../dom.js";
import { kindTag, presenceDot, userAvatar } from "../messages/avatar.js";
import { personMenu } from "./person_menu.js";
import { displayName } from "../state/directory.js";

/** The workspace's name; with several workspaces, a menu to switch. */
function teamMenu(team, teams) {
  const mark = h("span", { class: "workspace-mark", "aria-hidden": "true" });
  const name = h("span", { class: "workspace-name" }, h("strong", {}, team.name), h("span", {}, "on this machine"));
  if (teams.length < 2) return h("div", { class: "team" }, h("div", { class: "team-switch" }, mark, name));
  const button = h("button", { type: "button", class: "team-switch", testid: "team-switch", title: "Switch the workspace" }, mark, name, icon("chevron"));
  const options = teams.map((each) => teamOption(each, each.id === team.id));
  return menu({ name: "team", label: "Switch the workspace", options, button }).element;
}

function teamOption(team, isHere) {
  const address = `/?team=${encodeURIComponent(team.id)}`;
  return h("a", { href: address, role: "menuitemradio", "aria-checked": String(isHere), testid: `team-option-${team.name}` }, h("span", {}, team.name), isHere ? icon("check") : null);
}

/** Workspace name, conversations, and the current person. */
export class Sidebar {
  #session;
  #actions;
  #key = null;

  /** `actions`: openChannel(channel), openDirect(user), become(person), jump(), keys(), faults(), and tour(), or null without one. */
  constructor(session, actions) {
    this.#session = session;
    this.#actions = actions;
    this.faults = iconButton("bolt", "Faults and limits (Ctrl .)", () => actions.faults(), { "data-testid": "open-faults", "aria-expanded": "false" });
    this.sections = h("nav", { class: "places", "aria-label": "Conversations" });
    this.problem = h("p", { class: "problem", role: "alert", hidden: true });
    this.element = h(
      "div",
      { class: "sidebar" },
      this.#header(),
      h("div", { class: "jump-row" }, jumpButton(actions.jump), this.faults),
      this.sections,
      this.problem,
      personMenu(session, actions.become, { name: "person", label: "You are", size: "" }),
    );
  }

  update() {
    const { directory, marks, channelId } = this.#session;
    const channels = directory.openChannels;
    const unread = (channel) => Boolean(channel) && channel.id !== channelId && marks.isUnread(channel.id);
    const users = directory.partners;
    const state = [channelId, channels.map((each) => [each.id, each.name, unread(each)]), users.map((each) => [each.id, each.online, directory.directWith(each.id)?.id, unread(directory.directWith(each.id))])];
    const key = JSON.stringify(state);
    if (key === this.#key) return;
    this.#key = key;
    const focused = this.sections.contains(document.activeElement) ? document.activeElement.dataset.testid : null;
    this.sections.replaceChildren(
      section("Channels", channels.map((channel) => this.#channel(channel, unread(channel)))),
      section("Direct messages", users.map((user) => this.#direct(user, unread(directory.directWith(user.id))))),
    );
    if (focused) this.sections.querySelector(`[data-testid="${CSS.escape(focused)}"]`)?.focus();
  }

  fail(error) {
    this.problem.textContent = error?.message ?? "";
    this.problem.hidden = !error;
  }

  /** `any`: whether a fault is active, as of the last poll. */
  showFaults(open, any = this.faults.classList.contains("armed")) {
    this.faults.setAttribute("aria-expanded", String(open));
    this.faults.classList.toggle("armed", any);
  }

  #header() {
    return h(
      "header",
      { class: "workspace" },
      teamMenu(this.#session.directory.team, this.#session.directory.teams),
      this.#actions.tour ? iconButton("compass", "Guided tour", () => this.#actions.tour(), { "data-testid": "open-tour" }) : null,
      iconButton("keys", "Keyboard shortcuts (?)", () => this.#actions.keys()),
    );
  }

  #channel(channel, unread) {
    const open = () => this.#actions.openChannel(channel);
    return this.#place(`channel-${channel.name}`, channel.id, unread, open, [h("span", { class: "glyph" }, icon("hash")), h("span", { class: "place-name" }, channel.name)]);
  }

  #direct(user, unread) {
    const { directory } = this.#session;
    const name = h("span", { class: "place-name" }, displayName(user));
    const picture = h("span", { class: "glyph" }, userAvatar(user, "small"), presenceDot(user));
    const open = () => this.#actions.openDirect(user);
    return this.#place(`dm-${user.name}`, directory.directWith(user.id)?.id, unread, open, [picture, name, kindTag(user)]);
  }

  #place(testid, channelId, unread, onclick, content) {
    const current = channelId && channelId === this.#session.channelId;
    const props = { type: "button", class: `place ${unread ? "unread" : ""}`, testid, onclick, "aria-current": current ? "page" : null, "data-unread": String(unread) };
    return h("li", {}, h("button", props, content, unread ? h("span", { class: "unread-dot", role: "img", "aria-label": "unread" }) : null));
  }
}

const jumpButton = (jump) =>
  h("button", { type: "button", class: "jump", onclick: () => jump() }, icon("search"), h("span", {}, "Jump to…"), h("kbd", {}, /Mac|iPhone|iPad/.test(navigator.platform) ? "⌘K" : "Ctrl K"));

const section = (title, items) => h("section", {}, h("h2", {}, title), h("ul", {}, items));
