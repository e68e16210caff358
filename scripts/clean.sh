#!/usr/bin/env bash
# Removes what the other targets made in this checkout: first the clusters, then the files. The cache that
# checkouts share (~/.cache/eos-harness) stays: `rm -r` it by hand to fetch and build everything anew.
set -euo pipefail
cd "$(dirname "$0")/.."
venv=$1
for state in .eos .eos-tests .eos-demo; do
    if [ -e "$state/cluster.json" ]; then
        "$venv/bin/eos" down --state "$state"
    fi
done
rm -rf "$venv" .eos .eos-tests .eos-demo .env runs build dist ./*.egg-info \
    .mypy_cache .ruff_cache .pytest_cache .hypothesis .import_linter_cache
find . -name __pycache__ -type d -prune -exec rm -rf {} +
