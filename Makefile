# Everything runs in .venv, which setup.sh makes from the lock files.
PYTHON ?= python3
PORT ?= 8040
BIN := .venv/bin

.PHONY: play test check format bench lock clean

play: .venv/runtime.done
	@$(BIN)/python -m local_slack --port $(PORT) --bot alpha -- $(BIN)/amplifier-slack run --config deploy/play/config.yaml

test: .venv/dev.done
	@deploy/setup.sh system
	$(BIN)/pytest

check: .venv/dev.done
	$(BIN)/ruff format --check .
	$(BIN)/ruff check .
	$(BIN)/mypy
	$(BIN)/lint-imports
	$(BIN)/pytest -m "not browser"

format: .venv/dev.done
	$(BIN)/ruff format .
	$(BIN)/ruff check --fix .

bench:
	@echo "No benchmarks yet."

lock: .venv/dev.done
	deploy/setup.sh lock

.venv/runtime.done: requirements.lock pyproject.toml
	@PYTHON=$(PYTHON) deploy/setup.sh runtime

.venv/dev.done: requirements-dev.lock pyproject.toml
	@PYTHON=$(PYTHON) deploy/setup.sh dev

clean:
	rm -rf .venv workspaces
