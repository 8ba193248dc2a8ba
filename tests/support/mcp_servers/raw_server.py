"""A server over stdio that sends exactly what its first argument (compressed JSON) says, valid or not.

`tools`: the tools of each `tools/list` in turn, the last one again and again. `result`: of `tools/call`; `error`
in its place. `lines`: sent before the result, as they are. `end`: exit in place of a result.
"""

import base64
import json
import sys
import zlib
from typing import Any

TOOL = {"name": "act", "description": "Acts.", "inputSchema": {"type": "object", "properties": {}}}


def send(message: Any) -> None:
    text = message if isinstance(message, str) else json.dumps(message)
    sys.stdout.buffer.write(text.encode(errors="surrogatepass") + b"\n")
    sys.stdout.flush()


def main() -> None:
    case = json.loads(zlib.decompress(base64.b64decode(sys.argv[1])))
    listings = case.get("tools", [[TOOL]])
    for line in sys.stdin:
        request = json.loads(line)
        number = request.get("id")
        if number is None or "method" not in request:  # a notification, or the answer to a question
            continue
        answer: dict[str, Any] = {"jsonrpc": "2.0", "id": number}
        match request["method"]:
            case "initialize":
                answer["result"] = {
                    "protocolVersion": "2025-06-18",
                    "capabilities": {"tools": {"listChanged": True}, **case.get("capabilities", {})},
                    "serverInfo": {"name": "raw", "version": "1"},
                }
            case "tools/list":
                answer["result"] = {"tools": listings[0]}
                listings = listings[1:] or listings
            case "tools/call":
                token = (request["params"].get("_meta") or {}).get("progressToken")
                for each in case.get("lines", ()) * case.get("times", 1):
                    send(json.loads(json.dumps(each).replace('"TOKEN"', json.dumps(token))))
                if case.get("end"):
                    sys.exit(3)
                if "error" in case:
                    answer["error"] = case["error"]
                else:
                    answer["result"] = case.get("result", {"content": [{"type": "text", "text": "fine"}]})
            case _:
                answer["error"] = {"code": -32601, "message": "Method not found"}
        send(answer)


main()
