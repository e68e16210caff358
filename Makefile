# Every target calls the tool or pytest; what they do is in harness/, scripts/ and tests/.
SHELL := /bin/bash
.DEFAULT_GOAL := help
PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
# compose, process, or auto: compose where a Docker engine and its compose plugin answer
BACKEND ?= auto
PYTEST_ARGS ?=

venv: $(VENV)/.ready ## create .venv with the pinned dependencies (the other targets do it by themselves)

$(VENV)/.ready: requirements.lock pyproject.toml
	@PYTHON=$(PYTHON) scripts/make-venv.sh $(VENV)
