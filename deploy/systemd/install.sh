#!/bin/sh
# Installs the service from this checkout, or upgrades it: a user, a folder in /opt/amplifier-slack with the packages of
# requirements.lock, /etc/amplifier-slack with the configuration and the tokens, and the systemd unit. Files in
# /etc/amplifier-slack that exist are kept. It starts and restarts nothing. `rollback` returns to the release before.
set -eu
cd "$(dirname "$0")/../.."
python=${PYTHON:-python3}
releases=/opt/amplifier-slack
settings=/etc/amplifier-slack

if [ "$(id -u)" != 0 ]; then
    echo "Run this as root: sudo $0" >&2
    exit 1
fi

# Makes a release the current one; the one before it stays as `previous`.
switch() {
    before=$(readlink "$releases/current" || true)
    [ -z "$before" ] || ln -sfn "$before" "$releases/previous"
    ln -sfn "$1" "$releases/current"
}

case "${1:-install}" in
install) ;;
rollback)
    previous=$(readlink "$releases/previous") || { echo "There is no release before this one." >&2; exit 1; }
    switch "$previous"
    echo "$previous is the current release; now: systemctl restart amplifier-slack"
    exit
    ;;
*)
    echo "Usage: $0 [install | rollback]" >&2
    exit 2
    ;;
esac

if ! "$python" -c 'import sys, ensurepip, venv; sys.exit(sys.version_info < (3, 11))'; then
    echo "Python 3.11 or newer with venv is needed (Debian: apt-get install python3-venv); name another with PYTHON=..." >&2
    exit 1
fi
if ! id amplifier-slack >/dev/null 2>&1; then
    useradd --system --user-group --home-dir /var/lib/amplifier-slack --no-create-home --shell /usr/sbin/nologin \
        amplifier-slack
fi

umask 022
release=$(sed -n 's/^version = "\(.*\)"$/\1/p' pyproject.toml)-$(date -u +%Y%m%dT%H%M%S)
mkdir -p "$releases"
echo "Installing $releases/$release ..."
"$python" -m venv "$releases/$release"
set -- "$releases/$release/bin/python" -m pip install --quiet --disable-pip-version-check
"$@" --require-hashes -r requirements.lock
"$@" --no-deps --no-build-isolation .
"$releases/$release/bin/amplifier-slack" --version
switch "$release"
ln -sfn "$releases/current/bin/amplifier-slack" /usr/local/bin/amplifier-slack

install -d -m 0700 -o amplifier-slack -g amplifier-slack /var/lib/amplifier-slack
install -d -m 0755 "$settings"
[ -e "$settings/config.yaml" ] || install -m 0644 deploy/config.yaml "$settings/config.yaml"
[ -e "$settings/tokens.env" ] || install -m 0600 deploy/tokens.env.example "$settings/tokens.env"
install -m 0644 deploy/systemd/amplifier-slack.service /etc/systemd/system/amplifier-slack.service
if [ -d /run/systemd/system ]; then
    systemctl daemon-reload
fi
echo "Write the tokens into $settings/tokens.env, then: systemctl enable --now amplifier-slack"
