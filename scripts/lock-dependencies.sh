#!/usr/bin/env bash
# Writes requirements.lock from pyproject.toml: exact versions and hashes for every platform and Python.
#
#   scripts/lock-dependencies.sh             add what is missing, keep every version that still fits
#   scripts/lock-dependencies.sh --upgrade   move every package to its newest version
set -euo pipefail
cd "$(dirname "$0")/.."

scratch=$(mktemp -d)
trap 'rm -rf "$scratch"' EXIT
"${PYTHON:-python3}" -m venv "$scratch/venv"
"$scratch/venv/bin/pip" install --quiet --disable-pip-version-check uv
"$scratch/venv/bin/uv" pip compile pyproject.toml --group dev --universal --python-version 3.11 --generate-hashes \
    --quiet --custom-compile-command scripts/lock-dependencies.sh --output-file requirements.lock "$@"
