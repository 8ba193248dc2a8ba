# Everything runs in .venv, which deploy/setup.sh makes from the lock files.
PYTHON ?= python3
PORT ?= 8040
FOLDER ?= workspaces/play
SEEDS ?= 0:10000
WORLD ?= service
RUN := .venv/bin/python -m
# Tests wait more than they compute; those that take long begin first.
SIDE_BY_SIDE := -n 4 --dist loadfile --no-loadscope-reorder

.PHONY: play test simulate check format bench docs sbom proto lock clean moved

play: .venv/runtime.done
	@$(RUN) amplifier_slack play --port $(PORT) --folder $(FOLDER)

test: .venv/dev.done
	@deploy/setup.sh system
	$(RUN) pytest $(SIDE_BY_SIDE)

simulate: .venv/dev.done
	.venv/bin/python tests/simulation --world $(WORLD) --seeds $(SEEDS) $(addprefix --checkpoint ,$(CHECKPOINT))

check: .venv/dev.done
	$(RUN) ruff format --check .
	$(RUN) ruff check .
	$(RUN) mypy
	.venv/bin/python .venv/bin/lint-imports
	$(RUN) pytest $(SIDE_BY_SIDE) -m "not browser"

format: .venv/dev.done
	$(RUN) ruff format .
	$(RUN) ruff check --fix .

bench: .venv/bench.done
	@.venv/bench/bin/python -m benchmarks --write docs

docs: .venv/dev.done
	@.venv/bin/python deploy/docs/build.py dist/docs
	@echo "Open dist/docs/index.html, or serve it: python3 -m http.server -d dist/docs --bind 127.0.0.1"

sbom: .venv/runtime.done
	@deploy/setup.sh sbom

proto: .venv/dev.done
	$(RUN) grpc_tools.protoc -I. --python_out=. --pyi_out=. --grpc_python_out=. service/sessions/remote/sessions.proto

lock: .venv/dev.done
	deploy/setup.sh lock

.venv/runtime.done: requirements.lock pyproject.toml
	@PYTHON=$(PYTHON) deploy/setup.sh runtime

.venv/dev.done: requirements-dev.lock pyproject.toml
	@PYTHON=$(PYTHON) deploy/setup.sh dev

.venv/bench.done: requirements-bench.lock pyproject.toml | .venv/runtime.done
	@PYTHON=$(PYTHON) deploy/setup.sh bench

# A checkout that was moved, or whose Python has gone, is set up anew.
ifneq ($(shell .venv/bin/python -c 'print(open(".venv/place").read().strip())' 2>/dev/null),$(CURDIR))
.venv/runtime.done .venv/dev.done .venv/bench.done: moved
endif

clean:
	rm -rf .venv workspaces
