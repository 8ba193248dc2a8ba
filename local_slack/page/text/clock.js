/** Slack's `ts` is seconds since 1970, with a counter after the dot. */
const dateOf = (ts) => new Date(parseFloat(ts) * 1000);

const DAY_MS = 86_400_000;
const hourAndMinute = new Intl.DateTimeFormat(undefined, { hour: "2-digit", minute: "2-digit", hourCycle: "h23" });
const longDay = new Intl.DateTimeFormat("en", { weekday: "long", day: "numeric", month: "long" });
const full = new Intl.DateTimeFormat("en", { dateStyle: "full", timeStyle: "medium", hourCycle: "h23" });

export const timeOfDay = (ts) => hourAndMinute.format(dateOf(ts));
export const fullTime = (ts) => full.format(dateOf(ts));
export const dayKey = (ts) => dateOf(ts).toDateString();

export function dayName(ts, now = new Date()) {
  const key = dayKey(ts);
  if (key === now.toDateString()) return "Today";
  if (key === new Date(now - DAY_MS).toDateString()) return "Yesterday";
  return longDay.format(dateOf(ts));
}

export function ago(ts, now = Date.now()) {
  const minutes = Math.floor((now - dateOf(ts)) / 60_000);
  if (minutes < 1) return "just now";
  if (minutes < 60) return `${minutes} min ago`;
  const hours = Math.floor(minutes / 60);
  if (hours < 24) return hours === 1 ? "1 hour ago" : `${hours} hours ago`;
  return dayName(ts).toLowerCase();
}
