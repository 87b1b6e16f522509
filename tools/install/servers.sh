#!/bin/sh
# Puts what tests of other programs need on PATH, from Debian's and Ubuntu's packages: etcd for several controllers,
# Prometheus and promtool for alert rules and the board, Chromium for the dashboard in a browser; from npm's Azurite, an
# object store like Azure's; and from Go's modules fake-gcs-server, one like Google's, which is built in some two minutes.
# Without the rights, or elsewhere, it says what to install; tests without their program are skipped. No service has to run.
#
#   tools/install/servers.sh                 all of them
#   tools/install/servers.sh etcd            one of them
set -eu
export DEBIAN_FRONTEND=noninteractive

install() {  # the program, the package
    if command -v "$1" >/dev/null 2>&1; then
        echo "install servers: $1 is there already"
    elif ! command -v apt-get >/dev/null 2>&1; then
        echo "install servers: there is no apt-get here: install $1 from your system's packages, so that it is on PATH" >&2
        return 1
    elif [ "$(id -u)" != 0 ]; then
        echo "install servers: run as root: apt-get install $2" >&2
        return 1
    else
        apt-get install -y --no-install-recommends "$2" ||
            { apt-get update && apt-get install -y --no-install-recommends "$2"; }
    fi
}

install_npm() {  # the program, the package, its version
    if command -v "$1" >/dev/null 2>&1; then
        echo "install servers: $1 is there already"
    elif ! command -v npm >/dev/null 2>&1; then
        echo "install servers: there is no npm here: install Node.js, and run npm install --global $2@$3" >&2
        return 1
    else
        npm install --global --no-audit --no-fund --loglevel=error "$2@$3"
    fi
}

install_go() {  # the program, the module, its version
    if command -v "$1" >/dev/null 2>&1; then
        echo "install servers: $1 is there already"
    elif ! command -v go >/dev/null 2>&1; then
        echo "install servers: there is no go here: install Go, and run GOBIN=/usr/local/bin go install $2@$3" >&2
        return 1
    elif ! [ -w /usr/local/bin ]; then
        echo "install servers: run GOBIN=… go install $2@$3 with a directory that is on PATH" >&2
        return 1
    else
        echo "install servers: building $1, which takes some minutes"
        GOBIN=/usr/local/bin go install "$2@$3"
    fi
}

[ $# -gt 0 ] || set -- etcd prometheus chromium azurite gcs
status=0
for name in "$@"; do
    case $name in
        etcd) install etcd etcd-server || status=1 ;;
        prometheus) install promtool prometheus || status=1 ;;
        chromium) install chromium chromium || status=1 ;;
        azurite) install_npm azurite-blob azurite 3.37.0 || status=1 ;;
        gcs) install_go fake-gcs-server github.com/fsouza/fake-gcs-server v1.56.1 || status=1 ;;
        *) echo "install servers: no such program: $name (etcd, prometheus, chromium, azurite, gcs)" >&2; status=2 ;;
    esac
done
exit $status
