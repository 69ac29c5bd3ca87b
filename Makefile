# People and CI use the same targets. `make run` and `make test` set up whatever is missing.
MODEL ?= resnet18
PYTHON ?= python3
BIN := .venv/bin
STAMP := .venv/.ready

.PHONY: setup run test check bench agent soak picture size capabilities clean

setup: $(STAMP)

$(STAMP): pyproject.toml constraints.txt tools/system_packages
	bash tools/system_packages g++
	test -x $(BIN)/python || $(PYTHON) -m venv .venv
	$(BIN)/pip install --quiet --disable-pip-version-check -c constraints.txt -e '.[all,dev]'
	touch $(STAMP)

# Without a MODEL of your own, a demonstration: a neighbour comes and goes.
DEMO := $(if $(filter file,$(origin MODEL)),--neighbour --seconds 40)

run: $(STAMP)
	$(BIN)/gearshift run "$(MODEL)" $(DEMO)

# What looks at the machine's load or at time runs alone, the rest on two processes of one thread.
# What hangs ends it after the third time, so that the reason is told.
test: check
	bash tools/system_packages chromium
	OMP_NUM_THREADS=1 $(BIN)/python -m pytest -m "not soak and not alone" -n 2 --maxfail=3
	$(BIN)/python -m pytest -m "not soak and alone" --maxfail=3

check: $(STAMP)
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy

bench: $(STAMP)
	mkdir -p docs/results
	$(BIN)/gearshift bench overhead --seconds 6 --json > new.json && mv new.json docs/results/overhead.json
	for seed in 15 16 17; do \
		measure() { $(BIN)/gearshift bench runtime --seed $$seed --json > new.json; }; \
		measure || measure || { rm new.json; exit 1; }; \
		mv new.json docs/results/runtime-$$seed.json; \
	done
	$(BIN)/python tools/chart.py docs/results/runtime.svg docs/results/runtime-*.json
	$(BIN)/gearshift bench split --seed 1 --json > new.json && mv new.json docs/results/split.json
	$(BIN)/gearshift bench runtime --model minilm@8 --model resnet18@8 --seed 15 --json > new.json && mv new.json docs/results/batch8.json
	$(BIN)/gearshift bench regions --json > new.json && mv new.json docs/results/regions.json
	$(BIN)/gearshift bench rnn --seed 1 --json > new.json && mv new.json docs/results/rnn.json

# The agents that are shipped, from the regions and kernels that are; --record measures those anew.
agent: $(STAMP)
	for knob in split rewrite unroll; do \
		$(BIN)/gearshift train $$knob --seed 1 --out .venv/agent || exit 1; \
		cp .venv/agent/agent.safetensors src/gearshift/decide/$$knob/; \
		cp .venv/agent/curve.svg docs/results/$$knob-agent.svg; \
		cp .venv/agent/standings.json docs/results/$$knob-agent.json; \
	done

soak: $(STAMP)
	$(BIN)/python -m pytest -m soak

# Of the README: a real run, its report as a browser shows it.
picture: $(STAMP)
	bash tools/system_packages chromium
	for start in first second; do $(BIN)/gearshift run resnet18 --neighbour --seconds 40 || exit 1; done
	bash tools/picture report.html docs/report.png

size: $(STAMP)
	$(BIN)/python tools/size.py

capabilities: $(STAMP)
	$(BIN)/python tools/capabilities.py

clean:
	rm -rf .venv
