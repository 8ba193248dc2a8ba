"""Which lines match a regular expression.

Run as a program of its own: a pattern may take for ever, and a process can be ended. It imports nothing of ours.

Standard input: JSON, `{"pattern", "ignore_case", "lines", "limit", "cpu_s"}`.
Standard output: JSON, `{"matches": [index, …]}` or `{"error": reason}`.
"""

import json
import re
import resource
import sys


def main() -> None:
    job = json.load(sys.stdin.buffer)
    # Should our parent die first, this ends us.
    resource.setrlimit(resource.RLIMIT_CPU, (job["cpu_s"], job["cpu_s"]))
    try:
        pattern = re.compile(job["pattern"], re.IGNORECASE if job["ignore_case"] else 0)
    except (re.error, RecursionError, OverflowError) as e:
        json.dump({"error": str(e)}, sys.stdout)
        return
    matches: list[int] = []
    for index, line in enumerate(job["lines"]):
        if pattern.search(line):
            matches.append(index)
            if len(matches) >= job["limit"]:
                break
    json.dump({"matches": matches}, sys.stdout)


if __name__ == "__main__":
    main()
