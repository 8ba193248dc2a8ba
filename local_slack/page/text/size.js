const UNITS = ["bytes", "KB", "MB", "GB"];

/** "842 bytes", "1.4 KB", "13 MB". */
export function fileSize(bytes) {
  if (!Number.isFinite(bytes)) return "";
  if (bytes === 1) return "1 byte";
  const power = Math.min(Math.floor(Math.log(Math.max(bytes, 1)) / Math.log(1024)), UNITS.length - 1);
  const amount = bytes / 1024 ** power;
  return `${power && amount < 10 ? amount.toFixed(1) : Math.round(amount)} ${UNITS[power]}`;
}
