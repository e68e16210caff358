#!/usr/bin/env bash
# Makes the attempts of the client matrix that docs/evidence/matrix.jsonl lacks, adds them to this file, and writes
# docs/matrix.md from it. A sweep that was interrupted continues.
#
#   scripts/client-matrix.sh                                       every library, every version of Kafka, three attempts
#   scripts/client-matrix.sh --library sarama --kafka 4.3.1        some libraries or versions
set -euo pipefail
cd "$(dirname "$0")/.."

versions=()
if [[ " $* " != *" --kafka "* ]]; then
    for file in harness/provision/data/kafka/*.lock; do
        versions+=(--kafka "$(basename "$file" .lock)")
    done
fi
code=0
.venv/bin/eos matrix --tries 3 --output docs/evidence/matrix.jsonl "${versions[@]}" "$@" || code=$?
.venv/bin/python -m tools.matrix_page
exit "$code"
