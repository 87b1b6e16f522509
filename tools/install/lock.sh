#!/usr/bin/env bash
# Locks requirements/*.txt: every package of every platform with its hashes, and no host or path.
# The machine's own index settings stay out of the files; `tools/install/lock.sh --upgrade` takes newer versions.
set -euo pipefail
cd "$(dirname "$0")/../.."

uv=.venv/bin/uv
header="# Locked by \`make lock\` from pyproject.toml; not edited by hand."

lock() {
    local file=$1
    shift
    env -u PIP_FIND_LINKS -u UV_FIND_LINKS "$uv" --no-config pip compile --quiet --universal --generate-hashes \
        --python-version 3.11 --no-emit-index-url --no-emit-find-links --no-annotate --no-header \
        "$@" --output-file "$file"
    printf '%s\n%s\n' "$header" "$(grep -v '^#' "$file")" >"$file"
}

# All extras but Airflow, which has constraints of its own, and 150 packages.
extras=$(.venv/bin/python -c 'import tomllib
for name in tomllib.load(open("pyproject.toml", "rb"))["project"]["optional-dependencies"]:
    print("--extra", name) if name != "airflow" else None')

# shellcheck disable=SC2086  # words
lock requirements/dev.txt pyproject.toml $extras --group dev --group build "$@"
lock requirements/base.txt pyproject.toml --extra server --constraint requirements/dev.txt "$@"
lock requirements/build.txt --group build --constraint requirements/dev.txt "$@"

if grep -nE '://|file:|find-links|index-url' requirements/*.txt; then
    echo "a lock file names a host or a path (lines above)" >&2
    exit 1
fi
