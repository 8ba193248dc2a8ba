#!/bin/sh
# Makes .venv from a lock file (runtime | dev), or in it the environment of the benchmarks (bench); installs the system
# packages of the tests (system), lists the packages of an installed wheel (sbom), or makes the lock files anew (lock).
set -eu
cd "$(dirname "$0")/.."

# Installs Debian packages where this machine lets us, else says which ones are missing.
apt() {
    if ! command -v apt-get >/dev/null; then
        echo "Please install: $*" >&2
        exit 1
    elif [ "$(id -u)" = 0 ]; then
        as_root=""
    elif sudo -n true 2>/dev/null; then
        as_root="sudo"
    else
        echo "Please install: sudo apt-get install $*" >&2
        exit 1
    fi
    echo "Installing $* ..."
    log=$(mktemp)
    $as_root apt-get update -qq >"$log" 2>&1 || true
    if ! DEBIAN_FRONTEND=noninteractive $as_root apt-get install -y -qq --no-install-recommends "$@" >>"$log" 2>&1; then
        cat "$log" >&2
        echo "Could not install $*; please install them by hand." >&2
        exit 1
    fi
    rm -f "$log"
}

# Makes an environment ($1) from a lock file ($2).
venv() {
    python=${PYTHON:-python3}
    if ! command -v "$python" >/dev/null; then
        if [ "$python" != python3 ]; then
            echo "There is no $python; name another one with PYTHON=..., or leave it out." >&2
            exit 1
        fi
        apt python3 python3-venv
    fi
    if ! "$python" -c 'import sys; sys.exit(sys.version_info < (3, 11))'; then
        echo "Python 3.11 or newer is needed; $python is $("$python" -V). Name another one with PYTHON=..." >&2
        exit 1
    fi
    if [ ! -x "$1/bin/pip" ] || [ "$(cat "$1/place" 2>/dev/null)" != "$(pwd -P)" ] || ! "$1/bin/python" -c ''; then
        "$python" -c 'import ensurepip, venv' 2>/dev/null || apt "$(basename "$python")-venv"
        rm -rf "$1"
        "$python" -m venv "$1"
        pwd -P >"$1/place"
    fi
    echo "Installing the Python packages of $2 ..."
    "$1/bin/python" -m pip install --quiet --disable-pip-version-check --require-hashes -r "$2"
    "$1/bin/python" -m pip install --quiet --disable-pip-version-check --no-deps --no-build-isolation -e .
}

case "${1:-}" in
runtime)
    venv .venv requirements.lock
    touch .venv/runtime.done
    ;;
dev)
    venv .venv requirements-dev.lock
    touch .venv/runtime.done .venv/dev.done
    ;;
bench)
    # An environment of its own: what the other loops bring along is not for the tests.
    venv .venv/bench requirements-bench.lock
    touch .venv/bench.done
    ;;
system)
    missing=""
    { command -v chromium || command -v chromium-browser || command -v google-chrome; } >/dev/null || missing="chromium"
    command -v redis-server >/dev/null || missing="$missing redis-server"
    # Playwright's driver needs it, and a small Debian has none.
    PATH="$PATH:/sbin:/usr/sbin" ldconfig -p | grep -q 'libatomic\.so\.1' || missing="$missing libatomic1"
    # shellcheck disable=SC2086 # one word per package
    [ -z "$missing" ] || apt $missing
    # Without it, the tests of its sandbox are skipped.
    command -v bwrap >/dev/null || (apt bubblewrap) || true
    # Only the look of the page needs it: without it emoji are empty boxes.
    fc-list 2>/dev/null | grep -qi emoji || (apt fonts-noto-color-emoji) || true
    # The first start reads it from disk and lists the fonts, which takes a minute while tests run.
    case "$missing" in *chromium*)
        profile=$(mktemp -d)
        timeout 120 chromium --headless --no-sandbox --disable-gpu --no-first-run --disable-background-networking \
            --disable-component-update --disable-sync --user-data-dir="$profile" --dump-dom about:blank \
            >/dev/null 2>&1 || true
        rm -rf "$profile"
        ;;
    esac
    ;;
sbom)
    # What an installed wheel has, at the locked versions; the tool that lists it has an environment of its own.
    rm -rf .venv/sbom dist/sbom
    mkdir -p .venv/sbom dist/sbom
    sed -nE 's/^([A-Za-z0-9._-]+==[^ \\]+( ; [^\\]*)?).*/\1/p' requirements.lock >.venv/sbom/constraints.txt
    .venv/bin/python -m hatchling build -t wheel -d dist >/dev/null
    for name in runtime tool; do .venv/bin/python -m venv .venv/sbom/$name; done
    .venv/sbom/tool/bin/pip install --quiet --disable-pip-version-check cyclonedx-bom
    .venv/sbom/runtime/bin/pip install --quiet --disable-pip-version-check -c .venv/sbom/constraints.txt dist/amplifier_slack-*.whl
    .venv/sbom/runtime/bin/pip uninstall --quiet --yes --disable-pip-version-check setuptools pip
    .venv/sbom/tool/bin/cyclonedx-py environment --pyproject pyproject.toml --output-reproducible --output-format JSON \
        --output-file dist/sbom/sbom.json .venv/sbom/runtime
    .venv/bin/python - <<'LICENCES' | tee dist/sbom/licences.txt
import json
for each in json.load(open("dist/sbom/sbom.json"))["components"]:
    said = [found.get("expression") or found["license"].get("id") or found["license"]["name"] for found in each.get("licenses", ())]
    print(f"{each['name']:<28} {each['version']:<12} {' / '.join(dict.fromkeys(said)) or 'unknown'}")
LICENCES
    ;;
lock)
    .venv/bin/pip install --quiet --disable-pip-version-check uv
    build=$(mktemp)
    printf 'editables\nhatchling\n' >"$build"
    compile() {
        UV_CUSTOM_COMPILE_COMMAND="make lock" .venv/bin/uv pip compile --quiet --upgrade --universal \
            --python-version 3.11 --generate-hashes --no-emit-index-url --no-emit-find-links --no-annotate "$@" >/dev/null
    }
    compile --output-file requirements.lock pyproject.toml "$build"
    # The image has all that tools and providers need.
    compile --extra grpc --extra mcp --extra openai --extra otel --extra shell --extra web --constraints requirements.lock \
        --output-file requirements-image.lock pyproject.toml "$build"
    compile --group dev --output-file requirements-dev.lock pyproject.toml
    # The benchmarks measure what is installed elsewhere too.
    compile --group bench --constraints requirements.lock --output-file requirements-bench.lock pyproject.toml
    rm -f "$build"
    ;;
*)
    echo "Usage: deploy/setup.sh runtime | dev | bench | system | sbom | lock" >&2
    exit 2
    ;;
esac
