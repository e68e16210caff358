#!/usr/bin/env bash
# Creates the virtual environment in $1 with the pinned dependencies, hashes checked, and this package in it.
# With --check it only checks that an environment which exists was made with $PYTHON.
set -euo pipefail
cd "$(dirname "$0")/.."
check=
[ "$1" != --check ] || { check=yes; shift; }
venv=$1
python=${PYTHON:-python3}

fail() { printf 'error: %s\nhint: %s\n' "$1" "$2" >&2; exit 4; }

command -v "$python" >/dev/null || fail "no $python on PATH" "install Python 3.11 or newer, or name one: make PYTHON=/path/to/python3 ..."
"$python" -c 'import sys; sys.exit(sys.version_info < (3, 11))' ||
    fail "$("$python" --version) is too old" "Python 3.11 or newer is needed: make PYTHON=python3.12 ..."
if [ -n "$check" ]; then
    which='import sys; print(sys.version.split()[0], "in", sys.base_prefix)'
    [ ! -x "$venv/bin/python" ] || [ "$("$venv/bin/python" -c "$which")" = "$("$python" -c "$which")" ] ||
        fail "$venv was made with Python $("$venv/bin/python" -c "$which"), and PYTHON=$python is another one" \
            "leave out PYTHON, or make a new one: rm -r $venv"
    exit
fi
"$python" -c 'import ensurepip, venv' 2>/dev/null ||
    fail "$python has no venv module" "Debian: apt-get install python3-venv"
command -v java >/dev/null || [ -x "${JAVA_HOME:-}/bin/java" ] ||
    fail "no java on PATH" "install Java 17 or newer (Debian: apt-get install openjdk-17-jre-headless) or set JAVA_HOME"

[ -x "$venv/bin/python" ] || { echo "creating $venv with $("$python" --version)"; "$python" -m venv "$venv"; }
count=$(grep -c '^[a-zA-Z].*==' requirements.lock)
echo "installing up to $count pinned dependencies, 1.0 GB (a minute or more the first time)"
PYTHONUNBUFFERED=1 "$venv/bin/pip" install --progress-bar off --disable-pip-version-check --require-hashes --requirement requirements.lock |
    awk '/^Collecting/ { printf "  %d  %s\n", ++n, $2; fflush() }
        /^Building wheels for/ { sub(/.*: /, ""); print "  building " $0 " (the longest step)"; fflush() }
        /^Installing collected/ { print "  installing them; PySpark has many files"; fflush() }'
"$venv/bin/pip" install --quiet --disable-pip-version-check --no-deps --no-build-isolation \
    --config-settings editable_mode=compat --editable .
touch "$venv/.ready"
echo "ready: .venv/bin/eos is the command; '. .venv/bin/activate' puts it on the PATH, and 'eos doctor' checks this machine"
