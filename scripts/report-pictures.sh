#!/usr/bin/env bash
# Make real runs, one for each kind of report, and take the pictures of docs/reference/report.md. It takes about
# ten minutes, and needs Chromium and pngquant (Debian: apt-get install chromium pngquant). The runs use the
# cluster of this checkout; if none is up, the script starts one and removes it at the end.
# usage: scripts/report-pictures.sh [FOLDER]
#   FOLDER  keeps the runs (default: a temporary folder); a run that it already has is not repeated
set -euo pipefail
cd "$(dirname "$0")/.."
root=$PWD
eos=$root/.venv/bin/eos
folder=${1:-$(mktemp -d)}
mkdir -p "$folder"
cp -r tests/toy "$folder"/
cd "$folder"
code=0
"$eos" status > /dev/null 2>&1 || code=$?
if [ "$code" = 5 ]; then # no cluster is up
    trap '"$eos" down > /dev/null' EXIT
    "$eos" up --backend process
fi

run() { # the verdicts differ, so an exit code is no error here
    local code=0 name
    name=$(basename "$1" .toml)
    [ -e "runs/$name/latest" ] && return
    "$eos" run "$@" --backend process --quiet || code=$?
    echo "eos run $*: exit code $code"
}

run demo --seed 7
run without-idempotence --seed 3
run idempotent-walkthrough --seed 1
run toy/toy.toml --seed 1 --set app.env.MISTAKE=state-not-restored
begun() { until grep -qs '"injected"' "runs/$1/latest/events.jsonl"; do sleep 1; done; }

if [ ! -e runs/jitter/latest ]; then # an interrupted run is unknown
    "$eos" run jitter --seed 5 --duration 60s --backend process --quiet &
    process=$!
    begun jitter
    kill -INT "$process"
    wait "$process" || true
fi
if [ ! -e runs/lost-answers/latest ]; then # a killed run has no verdict
    "$eos" run lost-answers --seed 5 --duration 60s --backend process --quiet &
    process=$!
    begun lost-answers
    kill -KILL "$process"
    wait "$process" || true
    "$eos" heal
fi
"$eos" report runs/lost-answers/latest
"$eos" index runs

pictures=$root/docs/pictures
cd "$root"
take() { .venv/bin/python -m tools.report_pictures "$pictures" "$@"; }
take --height 1300 \
    "valid=$folder/runs/demo/latest/report.html" \
    "timeline=$folder/runs/demo/latest/report.html#timeline" \
    "invalid=$folder/runs/without-idempotence/latest/report.html" \
    "unknown=$folder/runs/jitter/latest/report.html" \
    "killed=$folder/runs/lost-answers/latest/report.html" \
    "valid-dark=$folder/runs/demo/latest/report.html" \
    "invalid-phone=$folder/runs/without-idempotence/latest/report.html" \
    "walkthrough=$folder/runs/idempotent-walkthrough/latest/report.html#steps" \
    "application=$folder/runs/toy/latest/report.html#application"
take --height 640 "top=$folder/runs/demo/latest/report.html"
take --height 560 "index=$folder/runs/index.html"
pngquant --force --ext .png 96 "$pictures"/*.png
ls -l "$pictures"
