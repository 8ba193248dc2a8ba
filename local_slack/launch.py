"""``python -m local_slack.launch app.py``: run a Python app whose code does not set the address of Slack's API.

The default address of ``slack_sdk`` becomes ``SLACK_API_URL``; the app itself stays as it is.
"""

from __future__ import annotations

import os
import runpy
import sys
from pathlib import Path
from typing import Any


def main() -> None:
    """Run the script named by the first argument; the others are its own."""
    url, arguments = os.environ.get("SLACK_API_URL"), sys.argv[1:]
    if not url or not arguments:
        sys.exit("Usage: python -m local_slack -- python -m local_slack.launch APP.py [ARGUMENT]...")
    try:
        from slack_sdk.web.async_base_client import AsyncBaseClient  # noqa: PLC0415 - only this command needs it
        from slack_sdk.web.base_client import BaseClient  # noqa: PLC0415
    except ImportError:
        sys.exit("slack_sdk is not installed in this environment: pip install slack_sdk")
    for client in (BaseClient, AsyncBaseClient):
        init: Any = client.__init__
        init.__defaults__ = tuple(url if value == client.BASE_URL else value for value in init.__defaults__)
    sys.argv = arguments
    sys.path[0] = str(Path(arguments[0]).resolve().parent)
    runpy.run_path(arguments[0], run_name="__main__")


if __name__ == "__main__":
    main()
