# Every target calls the tool, pytest or a script; what they do is in harness/, tests/ and scripts/.
.DEFAULT_GOAL := help
PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
# compose, process, or auto: compose where a Docker engine and its compose plugin answer
BACKEND ?= auto
# more arguments for pytest, for example PYTEST_ARGS="-k jitter --keep"
PYTEST_ARGS ?=

# more arguments for `eos run`, for example RUN_ARGS="--seed 7 --keep"
RUN_ARGS ?=

.PHONY: help demo chaos test soak test-unit lint up down doctor venv clean mutants spark-archive spark-image \
        bench-startup bench-checker bench-tap bench-verify bench-scale bench-producers

help: ## print this list
	@echo "make TARGET   (BACKEND=auto|compose|process, PYTEST_ARGS=..., PYTHON=...)"
	@awk -F ':.*## ' '/^[a-z-]+:.*## / {printf "  %-16s %s\n", $$1, $$2}' Makefile

demo: $(VENV)/.ready ## start a cluster, break it under load, say the verdict; then find a planted fault
	@$(BIN)/eos demo --backend $(BACKEND)

chaos: $(VENV)/.ready ## all kinds of clients under a random mix of all faults (RUN_ARGS="--seed 7 --duration 30m")
	@$(BIN)/eos run everything --backend $(BACKEND) $(RUN_ARGS)

test: $(VENV)/.ready ## the tests on a real cluster: one case per fault class, every negative control
	@$(BIN)/pytest --backend $(BACKEND) $(PYTEST_ARGS)

soak: $(VENV)/.ready ## the tests with all targets, all repeats and long properties (hours)
	@$(BIN)/pytest --backend $(BACKEND) --soak $(PYTEST_ARGS)

test-unit: $(VENV)/.ready ## the tests that need no cluster
	@$(BIN)/pytest tests/unit tests/planted tests/property $(PYTEST_ARGS)

lint: $(VENV)/.ready ## format, lint, types and the import layers
	@$(BIN)/ruff format --check .
	@$(BIN)/ruff check .
	@$(BIN)/mypy
	@$(BIN)/lint-imports --no-cache

up: $(VENV)/.ready ## start the cluster (at once if it is up)
	@$(BIN)/eos up --backend $(BACKEND)

down: $(VENV)/.ready ## remove the cluster and its data
	@$(BIN)/eos down

doctor: $(VENV)/.ready ## check this machine and say what to do
	@$(BIN)/eos doctor --backend $(BACKEND)

bench-startup: $(VENV)/.ready ## measure start, memory and takeover against their targets
	@$(BIN)/python -m tools.bench.startup --backend $(BACKEND)

bench-checker: $(VENV)/.ready ## measure fold and check against a naive check of the same data
	@$(BIN)/python -m tools.bench.checker

bench-tap: $(VENV)/.ready ## measure what the wire tap costs against DIRECT and against Toxiproxy alone
	@$(BIN)/python -m tools.bench.tap

bench-verify: $(VENV)/.ready ## measure Spark's verification against a bare count and a plain consumer
	@$(BIN)/python -m tools.bench.verify --backend $(BACKEND)

bench-scale: $(VENV)/.ready ## measure what travels when 10 and 100 million records are verified
	@$(BIN)/python -m tools.bench.scale

bench-producers: $(VENV)/.ready ## measure what idempotence costs a producer, and what the harness's bookkeeping costs
	@$(BIN)/python -m tools.bench.producers --backend $(BACKEND)

spark-archive: $(VENV)/.ready ## make the class archive that starts Spark faster, once (a minute)
	@$(BIN)/python -m harness.witness.spark.cds_archive

spark-image: $(VENV)/.ready ## build the image of the compose profile `spark` (a master and two workers)
	@$(BIN)/python -m harness.provision.spark_image

mutants: $(VENV)/.ready ## weaken every check in turn and see a test go red (part of a soak)
	@$(BIN)/python -m tools.mutants

venv: $(VENV)/.ready ## create .venv with the pinned dependencies (the other targets do it themselves)

$(VENV)/.ready: requirements.lock pyproject.toml scripts/make-venv.sh
	@PYTHON=$(PYTHON) scripts/make-venv.sh $(VENV)

clean: ## remove what was made here: clusters, virtual environment, runs, caches of tools
	@scripts/clean.sh $(VENV)
