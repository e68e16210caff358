#!/usr/bin/env bash
# Runs the unit tests with the lowest or the highest versions that the ranges in pyproject.toml allow.
#
#   scripts/check-dependency-range.sh lowest [PYTEST_ARGUMENTS]
#   scripts/check-dependency-range.sh highest [PYTEST_ARGUMENTS]
#
# It downloads packages into a temporary virtual environment and removes the environment at the end. Set KEEP=FOLDER
# to create the environment there and keep it. Continuous integration does not run this script.
set -euo pipefail
cd "$(dirname "$0")/.."

case ${1:-} in
lowest) resolution=lowest-direct ;;
highest) resolution=highest ;;
*)
    printf 'error: %s\nhint: %s\n' "one argument is expected: lowest or highest" "scripts/check-dependency-range.sh lowest" >&2
    exit 4
    ;;
esac
shift

folder=${KEEP:-$(mktemp -d)}
[ -n "${KEEP:-}" ] || trap 'rm -rf "$folder"' EXIT
"${PYTHON:-python3}" -m venv "$folder"
"$folder/bin/pip" install --quiet --disable-pip-version-check uv
uv=("$folder/bin/uv" pip)
"${uv[@]}" compile pyproject.toml --quiet --resolution "$resolution" --python "$folder/bin/python" --no-header --no-annotate \
    --output-file "$folder/versions.txt"
"${uv[@]}" install --quiet --python "$folder/bin/python" --requirement "$folder/versions.txt" --group dev
"${uv[@]}" install --quiet --python "$folder/bin/python" --no-deps --config-setting editable_mode=compat --editable .
cat "$folder/versions.txt"
PATH="$folder/bin:$PATH" PYTHONPATH="$PWD" "$folder/bin/python" -m pytest -q tests/unit tests/planted "$@"
