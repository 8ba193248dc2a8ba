import { h, icon } from "./dom.js";
import { menu } from "./menu.js";

/** The workspace's name; with several workspaces, a menu to switch. */
export function teamMenu(team, teams) {
  const mark = h("span", { class: "workspace-mark", "aria-hidden": "true" });
  const name = h("span", { class: "workspace-name" }, h("strong", {}, team.name), h("span", {}, "on this machine"));
  if (teams.length < 2) return h("div", { class: "team" }, h("div", { class: "team-switch" }, mark, name));
  const button = h("button", { type: "button", class: "team-switch", testid: "team-switch", title: "Switch the workspace" }, mark, name, icon("chevron"));
  const options = teams.map((each) => option(each, each.id === team.id));
  return menu({ name: "team", label: "Switch the workspace", options, button }).element;
}

function option(team, isHere) {
  const address = `/?team=${encodeURIComponent(team.id)}`;
  return h("a", { href: address, role: "menuitemradio", "aria-checked": String(isHere), testid: `team-option-${team.name}` }, h("span", {}, team.name), isHere ? icon("check") : null);
}
