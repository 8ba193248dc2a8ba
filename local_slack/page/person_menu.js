import { userAvatar } from "./avatar.js";
import { displayName } from "./directory.js";
import { h, icon } from "./dom.js";

/** "You are Ana": the switch between the people of this workspace. */
export function personMenu(me, people, become) {
  const options = people.map((person) => option(person, me, (chosen) => choose(chosen)));
  const menu = h("div", { class: "person-menu", role: "menu", "aria-label": "Be another person", hidden: true }, h("p", { class: "menu-note" }, "Everyone here is you. Open a second tab to be two people at once."), options);
  const name = h("span", { class: "person-name" }, h("small", {}, "You are"), h("strong", {}, displayName(me)));
  const button = h("button", { type: "button", class: "person-switch", testid: "person-switch", "aria-haspopup": "menu", "aria-expanded": "false", onclick: () => toggle(menu.hidden) }, userAvatar(me), name, icon("chevron"));
  const element = h("div", { class: "person" }, menu, button);

  function toggle(open) {
    menu.hidden = !open;
    button.setAttribute("aria-expanded", String(open));
    if (open) menu.querySelector("[aria-checked=true]").focus();
  }
  function choose(person) {
    toggle(false);
    if (person.id === me.id) button.focus();
    else become(person);
  }
  element.addEventListener("keydown", (event) => {
    if (menu.hidden) return;
    if (event.key === "Escape") {
      event.stopPropagation();
      toggle(false);
      button.focus();
    }
    const step = { ArrowDown: 1, ArrowUp: -1 }[event.key];
    if (!step) return;
    event.preventDefault();
    const at = options.indexOf(document.activeElement);
    options.at((at + step) % options.length).focus();
  });
  element.addEventListener("focusout", (event) => !element.contains(event.relatedTarget) && toggle(false));
  return element;
}

function option(person, me, choose) {
  const isMe = person.id === me.id;
  return h(
    "button",
    { type: "button", role: "menuitemradio", "aria-checked": String(isMe), testid: `person-option-${person.name}`, onclick: () => choose(person) },
    userAvatar(person, "small"),
    h("span", {}, displayName(person)),
    isMe ? icon("check") : null,
  );
}
