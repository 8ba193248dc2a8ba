/** Client of the control API, which Slack does not have. */
async function ask(path, method = "GET", body = undefined) {
  const headers = body ? { "Content-Type": "application/json" } : {};
  let response;
  try {
    response = await fetch(path, { method, headers, body: body && JSON.stringify(body), cache: "no-store" });
  } catch {
    throw new Error("The workspace does not respond. Is it still running?");
  }
  const answer = await response.json().catch(() => ({ error: `The workspace responded with HTTP ${response.status}.` }));
  if (!response.ok) throw new Error(answer.error);
  return answer;
}

export const control = {
  faults: () => ask("/faults"),
  switchOn: (fault) => ask("/faults", "POST", fault),
  clear: () => ask("/faults", "DELETE"),
  limits: () => ask("/limits"),
};
