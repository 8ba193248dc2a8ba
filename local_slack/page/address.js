/**
 * The current person and place of this tab, in the URL hash, so that two tabs can be two people:
 * `#/ana/general`, `#/ana/@alpha`, `#/ana/general/1732134567.000100`.
 */
export function readAddress() {
  const [person, place, thread] = location.hash.replace(/^#\/?/, "").split("/").map(decodeURIComponent);
  return { person: person || null, place: place || null, thread: thread || null };
}

export function addressOf({ person, place, thread }) {
  return `#/${[person, place, thread].filter(Boolean).map((part) => encodeURIComponent(part).replace("%40", "@")).join("/")}`;
}

/** With `replace` no history entry is added, so that Back skips the page's own corrections. */
export function writeAddress(address, { replace = false } = {}) {
  const hash = addressOf(address);
  if (hash === location.hash) return;
  history[replace ? "replaceState" : "pushState"](null, "", hash);
}
