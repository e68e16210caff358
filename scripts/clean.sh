#!/usr/bin/env bash
# Removes everything that the other targets made in this checkout: first the clusters, then the files. The cache that
# checkouts share (~/.cache/eos-harness) stays; `rm -r` it by hand to download and build everything again. The notes on
# what a run has left on an external cluster stay too, together with the runs that contain them.
set -euo pipefail
cd "$(dirname "$0")/.."
venv=$1
for state in .eos .eos-tests .eos-tests-internal .eos-tests/* .eos-demo .eos-systems .eos-campaign/process .eos-campaign/compose; do
    if [ -e "$state/cluster.json" ]; then
        "$venv/bin/eos" down --state "$state" || "$venv/bin/eos" down --force --state "$state"
    fi
done
external=(.eos-external runs)
all_healed='import sys, pathlib; from harness.faults.intents import has_leftovers; sys.exit(has_leftovers(pathlib.Path(".eos-external")))'
if [ -d .eos-external ] && ! "$venv/bin/python" -c "$all_healed"; then
    echo "kept .eos-external and runs: \`eos heal --cluster FILE\` undoes what is noted there" >&2
    external=()
fi
rm -rf "$venv" .eos .eos-tests .eos-tests-internal .eos-demo .eos-systems .eos-campaign ${external[@]+"${external[@]}"} .env kept-logs build dist ./*.egg-info \
    .mypy_cache .ruff_cache .pytest_cache .hypothesis .import_linter_cache
find . -name __pycache__ -type d -prune -exec rm -rf {} +
