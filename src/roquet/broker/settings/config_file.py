"""Config file: broker.conf, read by our keys or Apache's, and rewritten in place.

A line is `key = value`. A key is ours (flush_interval, flush-interval) or Apache's
(flushIntervalCommitLog); our times and sizes carry a unit (500ms, 1GiB), Apache's are the bare
numbers that Java reads. An environment variable ROQUET_FLUSH_INTERVAL wins over the file.
"""

import re
from collections.abc import Iterator, Mapping
from pathlib import Path
from socket import gethostname
from typing import Any, Final

import msgspec

from roquet.broker.settings.apache_settings import unused_settings
from roquet.broker.settings.config import BrokerConfig
from roquet.broker.settings.definitions import OWN_NAMES, SETTINGS, setting_of
from roquet.log_records import logger
from roquet.model.errors import ConfigError
from roquet.model.settings import parse_addresses
from roquet.net.tls import KeyPassword
from roquet.net.tls_properties import TlsProperties, load_tls_properties

log = logger(__name__)

ENVIRONMENT_PREFIX: Final = "ROQUET_"


def read(text: str, source: str, environ: Mapping[str, str]) -> BrokerConfig:
    """The settings of a broker.conf; `source` names the file in errors."""
    found: dict[str, Any] = {
        "store_dir": Path.home() / "store",
        "broker_name": gethostname() or "broker-a",
    }
    if servers := environ.get("NAMESRV_ADDR"):
        found["name_servers"] = parse_addresses(servers, "NAMESRV_ADDR")
    unused: dict[str, str] = {}
    for number, key, value in lines(text):
        where = f"{source} line {number}: {key}"
        if key in unused_settings():
            log.warning("%s: no effect here. %s", where, unused_settings()[key].reason)
            unused[key] = value
            continue
        name, parse = setting_of(key, where)
        parsed = parse(value, where)
        if name is not None:
            found[name] = parsed
    found["unused"] = unused
    overrides = _overrides(environ)
    found |= overrides
    if (tls_file := found.get("tls_properties")) is not None:
        found |= _settings_of_tls(load_tls_properties(tls_file)) | overrides
    _check_log_path(found.pop("log_path", None), found["store_dir"])
    return BrokerConfig(**found)


def load(path: Path, environ: Mapping[str, str]) -> BrokerConfig:
    """The settings of a file. Raises ConfigError."""
    try:
        found = read(path.read_text("utf-8"), str(path), environ)
    except (OSError, UnicodeDecodeError) as error:
        raise ConfigError(f"{path}: cannot be read: {error}") from None
    return msgspec.structs.replace(found, source=path.resolve())


def _overrides(environ: Mapping[str, str]) -> dict[str, Any]:
    found: dict[str, Any] = {}
    for name, setting in SETTINGS.items():
        variable = ENVIRONMENT_PREFIX + name.upper()
        if override := environ.get(variable):
            found[name] = setting.parse(override, variable)
    return found


def _settings_of_tls(properties: TlsProperties) -> dict[str, Any]:
    found: dict[str, Any] = {}
    if (server := properties.server) is not None:
        found |= {
            "tls_cert": server.cert,
            "tls_key": server.key,
            "tls_key_password": server.key_password,
            "tls_client_ca": server.client_ca,
            "tls_client_auth": server.client_auth,
            "tls_mode": server.mode,
        }
    if (calls := properties.calls) is not None:
        password = calls.key_password
        found |= {
            "tls_enable": True,
            "tls_ca": calls.ca,
            "tls_verify": calls.verify,
            "tls_check_host": calls.check_host,
            "tls_client_cert": calls.cert,
            "tls_client_key": calls.key,
            "tls_client_key_password": KeyPassword(password) if password else None,
        }
    return found


def lines(text: str) -> Iterator[tuple[int, str, str]]:
    """Number, key and value of each line of a Java properties file."""
    pending, began = "", 0
    for number, line in enumerate(text.splitlines(), 1):
        began = began if pending else number
        pending += line.strip()
        if pending.endswith("\\"):
            pending = pending[:-1]
            continue
        if pending and pending[0] not in "#!":
            key, _, value = _split(pending)
            yield began, key.strip(), re.sub(r"\\([:=#!])", r"\1", value.strip())
        pending = ""


def _split(line: str) -> tuple[str, str, str]:
    match = re.search(r"(?<!\\)[=:]", line)
    return line.partition(match[0] if match else " ")


def rewrite_properties(text: str, requested: Mapping[str, tuple[str, str]]) -> str:
    """A properties file with changed values: replaced in place, new ones at the end."""
    left, found = dict(requested), list[str]()
    for piece in reversed(list(_pieces(text))):
        key = next((key for _, key, _ in lines(piece)), "")
        name = OWN_NAMES.get(key, key.replace("-", "_"))
        # Of several lines for one setting the last one counts.
        found.append(_line(left.pop(name)) if name in left else piece)
    found.reverse()
    if found and left and not found[-1].endswith("\n"):
        found[-1] += "\n"
    return "".join([*found, *map(_line, left.values())])


def _line(pair: tuple[str, str]) -> str:
    key, value = pair
    return f"{key}={value}\n"


def _pieces(text: str) -> Iterator[str]:
    """The logical lines of a file: a line and its continuations together."""
    piece = ""
    for line in text.splitlines(keepends=True):
        piece += line
        if not line.strip().endswith("\\"):
            yield piece
            piece = ""
    if piece:
        yield piece


def _check_log_path(path: Path | None, store_dir: Path) -> None:
    if path is not None and path != store_dir / "commitlog":
        raise ConfigError(
            f"storePathCommitLog: the log lies in {store_dir / 'commitlog'}; "
            f"to use {path}, make that a link or leave the key out"
        )
