/**
 * The kinds of faults, with their texts. `argument` is the argument of a kind: its name in the API, unit and bounds.
 * `short` is the text of an active fault.
 */
export const CALL_KINDS = [
  { kind: "error_response", words: "are refused with an error", argument: { name: "error", label: "Error", value: "internal_error", list: true }, short: (fault) => `refused: ${fault.error}` },
  { kind: "rate_limited", words: "are rate limited (429)", argument: { name: "retry_after_s", label: "Retry after", value: 5, least: 1, most: 3600, unit: "s" }, short: (fault) => `429, after ${fault.retry_after_s} s` },
  { kind: "server_error", words: "fail with an HTTP error (5xx)", argument: { name: "status", label: "HTTP status", value: 503, least: 400, most: 599 }, short: (fault) => `HTTP ${fault.status}` },
  { kind: "slow_response", words: "respond slowly", argument: { name: "delay_s", label: "Respond after", value: 3, least: 0, most: 600, step: "any", unit: "s" }, short: (fault) => `slow, ${fault.delay_s} s` },
  { kind: "drop_before_call", words: "lose the connection without effect", short: () => "connection lost, no effect" },
  { kind: "drop_after_call", words: "take effect, then lose the connection", short: () => "connection lost after the effect" },
];

export const DELIVERY_KINDS = [
  { kind: "duplicated", words: "are delivered twice", short: () => "twice" },
  { kind: "delayed", words: "are delivered late", argument: { name: "behind", label: "Behind", value: 1, least: 1, most: 1000, unit: "later events" }, short: (fault) => `late, behind ${fault.behind}` },
  { kind: "dropped", words: "are lost at the first attempt", short: () => "lost at the first attempt" },
];

/** One line for each active fault: `[subject, fault, times]`. */
export function linesOf({ calls = [], deliveries = [], frozen = false, enabled = true }) {
  const words = (kinds, fault) => kinds.find((each) => each.kind === fault.kind)?.short(fault) ?? fault.kind;
  const lines = calls.map((fault) => [fault.method, words(CALL_KINDS, fault), fault.times]);
  lines.push(...deliveries.map((fault) => ["Events", words(DELIVERY_KINDS, fault), fault.times]));
  if (frozen) lines.push(["Connections", "frozen: open and silent", null]);
  if (!enabled) lines.push(["Socket Mode", "switched off", null]);
  return lines;
}
