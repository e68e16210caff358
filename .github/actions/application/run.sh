#!/usr/bin/env bash
# Runs the scenario $SCENARIO with seeds 1 to $SEEDS, counts the verdicts, and fails on those in $FAIL_ON.
# Usage errors, refusals and bugs (exit codes 4 and up) always fail, with the same exit code.
set -uo pipefail
valid=0 invalid=0 unknown=0 limit=0
for seed in $(seq 1 "${SEEDS:-1}"); do
    eos run "$SCENARIO" --seed "$seed" --backend "${BACKEND:-process}" --keep ${DURATION:+--duration "$DURATION"}
    code=$?
    case $code in
        0) valid=$((valid + 1)) ;;
        1) invalid=$((invalid + 1)) ;;
        2) unknown=$((unknown + 1)) ;;
        3) limit=$((limit + 1)) ;;
        *) echo "::error::eos run ended with exit code $code"; exit "$code" ;;
    esac
done
eos down
for outcome in valid invalid unknown limit; do
    echo "$outcome=${!outcome}" >>"${GITHUB_OUTPUT:-/dev/null}"
done
result=0
for outcome in invalid unknown limit; do
    if [ "${!outcome}" -gt 0 ]; then
        echo "::error title=$outcome::${!outcome} of ${SEEDS:-1} runs of $SCENARIO: $outcome"
        case ",${FAIL_ON:-invalid,unknown,limit}," in *",$outcome,"*) result=1 ;; esac
    fi
done
exit $result
