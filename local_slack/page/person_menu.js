import { userAvatar } from "./avatar.js";
import { displayName } from "./directory.js";
import { h, icon } from "./dom.js";
import { menu } from "./menu.js";

/** Switch between the people of this workspace. */
export function personMenu(me, people, become) {
  const name = h("span", { class: "person-name" }, h("small", {}, "You are"), h("strong", {}, displayName(me)));
  const button = h("button", { type: "button", class: "person-switch", testid: "person-switch" }, userAvatar(me), name, icon("chevron"));
  const options = people.map((person) => option(person, me, (chosen) => choose(chosen)));
  const note = "You can act as any of these people. Open a second tab to act as two at once.";
  const { element, close } = menu({ name: "person", label: "Switch person", note, options, button });

  function choose(person) {
    close();
    if (person.id === me.id) button.focus();
    else become(person);
  }
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
