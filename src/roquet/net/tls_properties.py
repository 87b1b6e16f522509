"""TLS properties: Apache's `tls.properties`, as TLS of a server and of its own calls.

What differs from Apache's servers is stricter: no certificate is made up (`tls.test.mode.enable`),
and a certificate that clients show must be trusted whenever it is asked for.
"""

from collections.abc import Mapping
from enum import StrEnum
from pathlib import Path
from typing import Final, TypeVar

import msgspec

from roquet.log_records import logger
from roquet.model.errors import ConfigError, FieldError
from roquet.model.settings import parse_bool, suggest
from roquet.net.tls import ClientAuth, KeyPassword, ServerTls, Tls, TlsMode
from roquet.wire.properties_file import read_properties

log = logger(__name__)

CONFIG_FILE: Final = "tls.config.file"
"""Key of settings that names such a file."""

KEYS: Final = frozenset(
    {
        "tls.enable", "tls.server.mode", "tls.test.mode.enable",
        "tls.server.need.client.auth", "tls.server.authClient", "tls.server.certPath",
        "tls.server.keyPath", "tls.server.keyPassword", "tls.server.trustCertPath",
        "tls.client.authServer", "tls.client.certPath", "tls.client.keyPath",
        "tls.client.keyPassword", "tls.client.trustCertPath",
    }
)  # fmt: skip
"""Every key of such a file."""


class TlsProperties(msgspec.Struct, frozen=True, kw_only=True):
    """Settings of TLS that a file stands for."""

    server: ServerTls | None
    """None: connections are plain."""
    calls: Tls | None
    """TLS of the server's own calls, and of clients; None: they are plain."""


def load_tls_properties(path: Path) -> TlsProperties:
    """The content of a file. Raises ConfigError."""
    try:
        values = read_properties(path.read_text("utf-8"))
    except (OSError, UnicodeDecodeError, FieldError) as error:
        raise ConfigError(f"{path}: cannot be read: {error}") from None
    return tls_properties(values, str(path))


def take_tls(values: Mapping[str, str], source: str) -> tuple[dict[str, str], TlsProperties]:
    """Settings without those of TLS, and what those stand for. Raises ConfigError.

    A file that `tls.config.file` names wins over the keys beside it.
    """
    texts = {key: text for key, text in values.items() if key in KEYS}
    others = {key: text for key, text in values.items() if key not in KEYS}
    if (name := others.pop(CONFIG_FILE, "").strip()) != "":
        return others, load_tls_properties(_path(name))
    return others, tls_properties(texts, source)


def tls_properties(values: Mapping[str, str], source: str) -> TlsProperties:
    """Settings that keys and values stand for; `source` names them in errors.

    Raises ConfigError.
    """
    for key in values:
        if key not in KEYS:
            raise ConfigError(f"{source}: {key}: no such property of TLS{suggest(key, KEYS)}")
    texts = {key: text.strip() for key, text in values.items() if text.strip()}
    switches = {
        key: parse_bool(texts.get(key, "false"), f"{source}: {key}")
        for key in ("tls.enable", "tls.server.authClient", "tls.client.authServer")
    }
    return TlsProperties(
        server=_server(texts, source, checks_clients=switches["tls.server.authClient"]),
        calls=_calls(texts, switches) if switches["tls.enable"] else None,
    )


def _server(texts: Mapping[str, str], source: str, *, checks_clients: bool) -> ServerTls | None:
    mode = _member(TlsMode, texts, "tls.server.mode", TlsMode.PERMISSIVE, source)
    auth = _member(ClientAuth, texts, "tls.server.need.client.auth", ClientAuth.NONE, source)
    cert, trusted = texts.get("tls.server.certPath"), texts.get("tls.server.trustCertPath")
    if cert is None:
        if "tls.server.mode" in texts and mode is not TlsMode.DISABLED:
            raise ConfigError(
                f"{source}: tls.server.mode={mode} without tls.server.certPath: Apache's servers "
                "make up a certificate then (tls.test.mode.enable), this one needs files"
            )
        return None
    if auth is not ClientAuth.NONE and trusted is None:
        raise ConfigError(
            f"{source}: tls.server.need.client.auth={auth} without tls.server.trustCertPath: any "
            "certificate would be good enough"
        )
    if auth is not ClientAuth.NONE and not checks_clients:
        log.warning(
            "%s: certificates of clients are checked, though tls.server.authClient is false", source
        )
    password = texts.get("tls.server.keyPassword")
    return ServerTls(
        cert=_path(cert),
        key=_path(texts["tls.server.keyPath"]) if "tls.server.keyPath" in texts else None,
        key_password=KeyPassword(password) if password else None,
        client_ca=None if trusted is None or auth is ClientAuth.NONE else _path(trusted),
        client_auth=ClientAuth.REQUIRE if auth is ClientAuth.NONE else auth,
        mode=mode,
    )


def _calls(texts: Mapping[str, str], switches: Mapping[str, bool]) -> Tls:
    """TLS of calls; as with Apache's clients the name in a server's certificate is not checked."""
    paths = {
        name: _path(texts[key])
        for name, key in (
            ("ca", "tls.client.trustCertPath"),
            ("cert", "tls.client.certPath"),
            ("key", "tls.client.keyPath"),
        )
        if key in texts
    }
    return Tls(
        ca=paths.get("ca"),
        cert=paths.get("cert"),
        key=paths.get("key"),
        key_password=texts.get("tls.client.keyPassword"),
        check_host=False,
        verify=switches["tls.client.authServer"],
    )


def _path(text: str) -> Path:
    return Path(text).expanduser()


M = TypeVar("M", bound=StrEnum)


def _member(kind: type[M], texts: Mapping[str, str], key: str, default: M, source: str) -> M:
    text = texts.get(key, default).lower()
    if text not in frozenset(kind):
        raise ConfigError(f"{source}: {key}: {text!r} is none of {', '.join(kind)}")
    return kind(text)
