#!/usr/bin/env bash
# The agent of `make play`. Its Slack begins empty each time, with the same ids: what was said there before is not for
# the next one, unless that one is still at work.
set -euo pipefail
cd "$(dirname "$0")/../.."
mkdir -p workspaces
flock --nonblock workspaces/play.db.lock rm -f workspaces/play.db workspaces/play.db-* || true
exec .venv/bin/python -m service run --config deploy/play/config.yaml
