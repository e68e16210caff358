# Every target calls the tool, pytest or a script. The logic is in harness/, tests/ and scripts/.
.DEFAULT_GOAL := help
PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
# compose, process, or auto (compose if a Docker engine and its compose plugin answer)
BACKEND ?= auto
# processes that run the tests of `make test`; each has its own cluster (0: this process alone)
WORKERS ?= 2
# more arguments for pytest, for example PYTEST_ARGS="-k jitter --keep"
PYTEST_ARGS ?=

# more arguments for `eos run`, for example RUN_ARGS="--seed 7 --keep"
RUN_ARGS ?=

# more arguments for `make campaign`, for example CAMPAIGN_ARGS="--runs 20 --resume"
CAMPAIGN_ARGS ?=

# more arguments for `make bench`, for example BENCH_ARGS="--only checker"
BENCH_ARGS ?=

# more arguments for `make systems`, for example SYSTEMS_ARGS="streams --seed 1"
SYSTEMS_ARGS ?=

# more arguments for `make matrix`, for example MATRIX_ARGS="--library sarama --kafka 4.3.1"
MATRIX_ARGS ?=

.PHONY: help demo chaos test soak test-unit lint up down doctor venv clean mutants spark-archive spark-image \
        campaign systems matrix bench bench-app bench-startup bench-checker bench-tap bench-verify bench-scale bench-producers pictures

help: ## print this list
	@echo "make TARGET   (BACKEND=auto|compose|process, PYTEST_ARGS=..., PYTHON=...)"
	@awk -F ':.*## ' '/^[a-z-]+:.*## / {printf "  %-16s %s\n", $$1, $$2}' Makefile

demo: $(VENV)/.ready ## start a cluster, inject faults under load, print the verdict; then find a planted fault
	@$(BIN)/eos demo --backend $(BACKEND)

chaos: $(VENV)/.ready ## run all kinds of clients under a random mix of faults (RUN_ARGS="--seed 7 --duration 30m")
	@$(BIN)/eos run everything --backend $(BACKEND) $(RUN_ARGS)

test: $(VENV)/.ready ## run the tests on a real cluster: one case per fault class, every negative control
	@$(BIN)/pytest --backend $(BACKEND) -n $(WORKERS) --dist loadfile --no-loadscope-reorder $(PYTEST_ARGS)

soak: $(VENV)/.ready ## run the tests with all targets, all repeats and long properties (hours)
	@$(BIN)/pytest --backend $(BACKEND) --soak $(PYTEST_ARGS)

test-unit: $(VENV)/.ready ## run the tests that need no cluster
	@$(BIN)/pytest -n $(WORKERS) --dist loadfile --no-loadscope-reorder tests/unit tests/planted tests/property $(PYTEST_ARGS)

lint: $(VENV)/.ready ## check format, lint rules, types, import layers and prose
	@$(BIN)/ruff format --check .
	@$(BIN)/ruff check .
	@$(BIN)/mypy
	@$(BIN)/lint-imports --no-cache
	@$(BIN)/python -m tools.prose

up: $(VENV)/.ready ## start the cluster, or return at once if it is up
	@$(BIN)/eos up --backend $(BACKEND)

down: $(VENV)/.ready ## remove the cluster and its data
	@$(BIN)/eos down

doctor: $(VENV)/.ready ## check this machine and list what to install
	@$(BIN)/eos doctor --backend $(BACKEND)

bench: $(VENV)/.ready ## measure every figure that the docs quote, on one page, against targets and earlier runs (BENCH_ARGS="--only verify")
	@$(BIN)/python -m tools.bench.page --backend $(BACKEND) $(BENCH_ARGS)

bench-startup: $(VENV)/.ready ## measure start, memory and fail-over, and compare with the targets
	@$(BIN)/python -m tools.bench.startup --backend $(BACKEND)

bench-checker: $(VENV)/.ready ## measure the fold and the checkers, and compare with a naive check of the same data
	@$(BIN)/python -m tools.bench.checker

bench-tap: $(VENV)/.ready ## measure the cost of the wire tap, compared with DIRECT and with Toxiproxy alone
	@$(BIN)/python -m tools.bench.tap

bench-verify: $(VENV)/.ready ## measure Spark's verification, and compare with a bare count and a plain consumer
	@$(BIN)/python -m tools.bench.verify --backend $(BACKEND)

bench-app: $(VENV)/.ready ## measure the search for tokens in Spark, and the cost of a run with an application under test
	@$(BIN)/python -m tools.bench.app --backend $(BACKEND)

bench-scale: $(VENV)/.ready ## measure the bytes moved when 10 and 100 million records are verified
	@$(BIN)/python -m tools.bench.scale

bench-producers: $(VENV)/.ready ## measure the cost of idempotence and transactions for a producer, and of the harness's bookkeeping
	@$(BIN)/python -m tools.bench.producers --backend $(BACKEND)

spark-archive: $(VENV)/.ready ## make the class archive that lets Spark start faster; once, takes a minute
	@$(BIN)/python -m harness.witness.spark.cds_archive

spark-image: $(VENV)/.ready ## build the image of the compose profile `spark` (a master and two workers)
	@$(BIN)/python -m harness.provision.spark_image

mutants: $(VENV)/.ready ## weaken every check, one at a time, and require that a test fails (part of a soak)
	@$(BIN)/python -m tools.mutants

campaign: $(VENV)/.ready ## make many short runs, half with a planted client bug; count false verdicts (CAMPAIGN_ARGS="--runs 20")
	@$(BIN)/python -m tools.campaign --backend $(BACKEND) $(CAMPAIGN_ARGS)

systems: $(VENV)/.ready ## run the systems in apps/ with three seeds each, and write docs/systems.md (SYSTEMS_ARGS="streams --seed 1")
	@$(BIN)/python -m tools.systems run --backend $(BACKEND) $(SYSTEMS_ARGS)

matrix: $(VENV)/.ready ## make the missing attempts of the client matrix on five versions of Kafka, and write docs/matrix.md (hours)
	@scripts/client-matrix.sh $(MATRIX_ARGS)

pictures: $(VENV)/.ready ## make real runs and take the pictures of the docs with Chromium (ten minutes)
	@scripts/report-pictures.sh

venv: $(VENV)/.ready ## create .venv with the pinned dependencies; the other targets do this themselves

$(VENV)/.ready: requirements.lock pyproject.toml scripts/make-venv.sh
	@PYTHON=$(PYTHON) scripts/make-venv.sh $(VENV)

# a PYTHON that is named must be the one of the environment that exists
ifeq ($(origin PYTHON),command line)
$(VENV)/.ready: | same-python
endif
.PHONY: same-python
same-python:
	@PYTHON=$(PYTHON) scripts/make-venv.sh --check $(VENV)

clean: ## remove clusters, virtual environment, runs and caches of tools from this checkout
	@scripts/clean.sh $(VENV)
