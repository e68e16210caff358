#!/usr/bin/env bash
# Removes what the other targets made in this checkout: first the clusters, then the files. The cache that
# checkouts share (~/.cache/eos-harness) stays: `rm -r` it by hand to fetch and build everything anew. What a
# run has left on a cluster that is not ours stays noted, with the runs that the notes are in.
set -euo pipefail
cd "$(dirname "$0")/.."
venv=$1
for state in .eos .eos-tests .eos-demo; do
    if [ -e "$state/cluster.json" ]; then
        "$venv/bin/eos" down --state "$state" || "$venv/bin/eos" down --force --state "$state"
    fi
done
live=(.eos-live runs)
nothing_left='import sys, pathlib; from harness.faults.intents import has_leftovers; sys.exit(has_leftovers(pathlib.Path(".eos-live")))'
if [ -d .eos-live ] && ! "$venv/bin/python" -c "$nothing_left"; then
    echo "kept .eos-live and runs: \`eos heal --cluster FILE\` undoes what is noted there" >&2
    live=()
fi
rm -rf "$venv" .eos .eos-tests .eos-demo ${live[@]+"${live[@]}"} .env kept-logs build dist ./*.egg-info \
    .mypy_cache .ruff_cache .pytest_cache .hypothesis .import_linter_cache
find . -name __pycache__ -type d -prune -exec rm -rf {} +
