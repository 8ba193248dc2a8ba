import { h, icon, menu } from "../dom.js";
import { kindTag, userAvatar } from "../messages/avatar.js";
import { displayName } from "../state/directory.js";

/** A button that names the person who writes, and switches to another one. `name` is its class and the prefix of test ids. */
export function personMenu({ me, directory }, become, { name, label, size }) {
  const named = h("span", { class: "person-name" }, h("small", {}, label), " ", h("strong", {}, displayName(me)));
  const title = "Write as another person (Ctrl ,)";
  const button = h("button", { type: "button", class: `${name}-switch`, testid: `${name}-switch`, title }, userAvatar(me, size), named, icon("chevron"));
  const note = "You can act as any of these people; Ctrl , goes to the next one. Open a second tab to act as two at once.";
  const options = directory.people.map((person) => option(person, person.id === me.id));
  const { element, close } = menu({ name, label: "Write as", note, options, button });

  function option(person, isMe) {
    const onclick = () => {
      close();
      if (isMe) button.focus();
      else become(person);
    };
    const props = { type: "button", role: "menuitemradio", "aria-checked": String(isMe), testid: `${name}-option-${person.name}`, onclick };
    return h("button", props, userAvatar(person, "small"), h("span", {}, displayName(person)), kindTag(person), isMe ? icon("check") : null);
  }
  return element;
}

/** The person after `me`; the first one follows the last. */
export const nextPerson = ({ me, directory: { people } }) => people[(people.findIndex(({ id }) => id === me.id) + 1) % people.length];
