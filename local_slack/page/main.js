import { readAddress, writeAddress } from "./address.js";
import { h } from "./dom.js";
import { fetchState, Session } from "./session.js";
import { WorkspacePage } from "./workspace_page.js";

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

/** Switch to another person in the same place; a direct message is left, unless the address already names this person. */
async function become(person) {
  const address = readAddress();
  const isOthers = address.place?.startsWith("@") && address.person !== person.name;
  writeAddress(isOthers ? { person: person.name } : { ...address, person: person.name });
  await begin();
  document.querySelector("[data-testid=person-switch]")?.focus();
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
