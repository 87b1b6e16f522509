#!/bin/sh
# Runs the tests of everything but Spark, the lab, the dashboard and the command line with other Pythons:
#   tools/gates/other_pythons.sh python3.12 python3.13
# Each gets an environment below build/pythons, with what requirements/ locks, compiled inner loops where there is
# a C compiler, and its output beside it. TESTS are some of the folders below tests/, as "model rules"; PYTEST_ARGS are further
# arguments. Two files need Spark, or httpx.
set -eu
cd "$(dirname "$0")/../.."

tests=${TESTS:-model rules wire metrics store net namesrv broker controller client conversation admin}
needed="packaging pytest pytest-asyncio pytest-timeout pytest-xdist execnet iniconfig pluggy hypothesis sortedcontainers
opentelemetry-api opentelemetry-sdk opentelemetry-semantic-conventions"

locked() { # the lines of requirements/dev.txt for some packages
    awk -v wanted=" $(echo $needed) " \
        '/^[a-z]/ { split($1, name, "=="); keep = index(wanted, " " name[1] " ") } keep' requirements/dev.txt
}

install_into() { # an environment, arguments of pip
    environment=$1
    shift
    "$environment/bin/python" -m pip --disable-pip-version-check install --quiet "$@"
}

mkdir -p build/pythons
status=0
for python in "$@"; do
    version=$("$python" -c 'import platform; print(platform.python_version())')
    place=build/pythons/$version
    "$python" -m venv --clear "$place"
    locked >"$place/tests.txt"
    install_into "$place" --require-hashes --only-binary :all: -r requirements/base.txt -r "$place/tests.txt"
    "$python" tools/install/wheels.py --into "$place/wheel" "$python"
    install_into "$place" --no-deps --no-index "$place"/wheel/*.whl
    "$place/bin/roquet" --version | sed "s/^/Python $version: /"
    if ! PYTHONPATH='' "$place/bin/python" -m pytest -o "pythonpath=tools/generators tools/gates tools/fixtures tools/install" -p no:cacheprovider -q -n 2 --dist loadgroup \
        --ignore tests/conversation/test_examples.py --ignore tests/conversation/test_tls.py \
        $(printf 'tests/%s ' $tests) ${PYTEST_ARGS:-} >"$place/tests.log" 2>&1; then
        status=1
        grep -E "^(FAILED|ERROR)" "$place/tests.log" || true
    fi
    echo "Python $version: $(tail -n 1 "$place/tests.log")"
done
exit $status
