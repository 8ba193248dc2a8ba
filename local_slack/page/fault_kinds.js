/**
 * What can go wrong, in words. `argument` is what a kind is given: its name in the API, its unit and its bounds.
 * `short` says it of a fault that is on.
 */
export const CALL_KINDS = [
  { kind: "refuses", words: "are refused with an error", argument: { name: "error", label: "Error", value: "internal_error", list: true }, short: (fault) => `refused: ${fault.error}` },
  { kind: "rate_limits", words: "are told to wait (429)", argument: { name: "retry_after_s", label: "Retry after", value: 5, least: 1, most: 3600, unit: "s" }, short: (fault) => `429, after ${fault.retry_after_s} s` },
  { kind: "breaks", words: "break (5xx)", argument: { name: "status", label: "HTTP status", value: 503, least: 400, most: 599 }, short: (fault) => `HTTP ${fault.status}` },
  { kind: "slow", words: "are slow", argument: { name: "delay_s", label: "Answered after", value: 3, least: 0, most: 600, step: "any", unit: "s" }, short: (fault) => `slow, ${fault.delay_s} s` },
  { kind: "drops_before", words: "are cut off before they count", short: () => "cut off before" },
  { kind: "drops_afterwards", words: "are cut off after they counted", short: () => "cut off after" },
];

export const DELIVERY_KINDS = [
  { kind: "twice", words: "come twice", short: () => "twice" },
  { kind: "late", words: "come late", argument: { name: "behind", label: "Behind", value: 1, least: 1, most: 1000, unit: "later ones" }, short: (fault) => `late, behind ${fault.behind}` },
  { kind: "lost", words: "are lost at first", short: () => "lost at first" },
];

/** One line for each fault that is on: `[of what, what, how often]`. */
export function linesOf({ calls = [], deliveries = [], frozen = false, enabled = true }) {
  const words = (kinds, fault) => kinds.find((each) => each.kind === fault.kind)?.short(fault) ?? fault.kind;
  const lines = calls.map((fault) => [fault.method, words(CALL_KINDS, fault), fault.times]);
  lines.push(...deliveries.map((fault) => ["Events", words(DELIVERY_KINDS, fault), fault.times]));
  if (frozen) lines.push(["Connections", "frozen: open and silent", null]);
  if (!enabled) lines.push(["Socket Mode", "switched off", null]);
  return lines;
}
