#!/bin/sh
# Puts etcd on PATH for the tests of two controllers: Debian's and Ubuntu's package etcd-server.
# Elsewhere, or without the rights, it says what to install. The service of the package is not needed.
set -eu

if command -v etcd >/dev/null 2>&1; then
    echo "install_etcd: $(etcd --version | head -n 1) is there already"
    exit 0
fi
if ! command -v apt-get >/dev/null 2>&1; then
    echo "install_etcd: there is no apt-get here: install etcd 3.4 or newer from your system's packages" \
        "or from https://github.com/etcd-io/etcd/releases, so that 'etcd' is on PATH" >&2
    exit 1
fi
if [ "$(id -u)" != 0 ]; then
    echo "install_etcd: run as root: apt-get install etcd-server" >&2
    exit 1
fi
export DEBIAN_FRONTEND=noninteractive
apt-get install -y --no-install-recommends etcd-server ||
    { apt-get update && apt-get install -y --no-install-recommends etcd-server; }
echo "install_etcd: $(etcd --version | head -n 1)"
