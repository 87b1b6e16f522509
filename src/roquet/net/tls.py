"""TLS: contexts from PEM files, and plain explanations of failed handshakes."""

import ssl
from collections.abc import Mapping
from enum import StrEnum
from os import PathLike
from typing import TYPE_CHECKING, Any, Final

import msgspec

from roquet.model.config_check import CheckedConfig
from roquet.model.errors import ConfigError
from roquet.net.address import address_error

if TYPE_CHECKING:
    from pathlib import Path

TLS_1_2: Final = ssl.TLSVersion.TLSv1_2
"""The oldest version accepted: the Java of genuine brokers speaks at least this one."""

NO_TLS: Final = "it does not speak TLS: set no tls, or give another port"
HUNG_UP: Final = "it hung up during the TLS handshake: does it speak TLS? If not, set no tls"

_OF_ANOTHER_HOST: Final = (
    "its certificate is for another host ({}): give tls.server_name the name that it is for, "
    "or set tls.check_host to False"
)
_NOT_TRUSTED: Final = (
    "its certificate is not trusted ({}): tls.ca names the file of the authority that signed it"
)
_WANTS_OURS: Final = (
    "it wants a certificate of ours that it trusts ({}): tls.cert and tls.key name it"
)
_ALERTS: Final = {
    "wrong version number": NO_TLS,
    "record layer failure": NO_TLS,
    "unexpected eof": HUNG_UP,
    "certificate required": _WANTS_OURS,
    "bad certificate": _WANTS_OURS,
    "unknown ca": _WANTS_OURS,
}
"""Explanations by a part of OpenSSL's reason."""

_ANOTHER_HOST: Final = frozenset({62, 64})
"""OpenSSL's X509_V_ERR_HOSTNAME_MISMATCH and X509_V_ERR_IP_ADDRESS_MISMATCH."""


class KeyPassword(msgspec.Struct, frozen=True):
    """Password of a private key's file; it is not printed."""

    text: str

    def __repr__(self) -> str:
        return "KeyPassword(******)"


class Tls(CheckedConfig, frozen=True, kw_only=True):
    """TLS of a client, from PEM files. `Tls()` trusts the authorities that this machine trusts."""

    ca: str | PathLike[str] | None = None
    """File of the authority that signs the servers' certificates; None: those of this machine."""
    cert: str | PathLike[str] | None = None
    """Our own certificate (with intermediate ones), for servers that ask for one."""
    key: str | PathLike[str] | None = None
    """Its private key; None if it is in the file of the certificate."""
    key_password: str | None = None
    server_name: str | None = None
    """The name that certificates must be for; None is the host of each address. Name servers give
    brokers' addresses as numbers, while certificates are mostly for names."""
    check_host: bool = True
    """Whether a certificate must be for the host that presents it."""
    verify: bool = True
    """False accepts any certificate, as Java clients do by default: the connection is encrypted,
    but anybody can pose as the server."""

    def __repr__(self) -> str:
        shown = [f"{n}={getattr(self, n)!r}" for n in ("ca", "cert", "server_name", "check_host")]
        return f"Tls({', '.join(shown)}, verify={self.verify!r})"

    def __rich_repr__(self) -> list[tuple[str, object]]:
        return [("ca", self.ca), ("cert", self.cert), ("verify", self.verify)]

    def context(self) -> ssl.SSLContext:
        """The context for `loop.create_connection`. ConfigError when a file cannot be used."""
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
        context.minimum_version = TLS_1_2
        context.check_hostname = self.check_host and self.verify
        if not self.verify:
            context.verify_mode = ssl.CERT_NONE
        elif self.ca is None:
            context.load_default_certs()
        else:
            _trust(context, self.ca, "tls.ca")
        if self.cert is not None:
            _show(context, self.cert, self.key, self.key_password, "tls.cert")
        elif self.key is not None:
            raise ConfigError(f"tls.key: {self.key} is of no use without tls.cert")
        return context


class TlsMode(StrEnum):
    """Which connections a server with a certificate takes, by Apache's names."""

    DISABLED = "disabled"
    """Plain ones alone."""
    PERMISSIVE = "permissive"
    """Both: the first byte of each connection says which it is."""
    ENFORCING = "enforcing"
    """Those with TLS alone."""


class ClientAuth(StrEnum):
    """Whether a server asks clients for a certificate, by Apache's names."""

    NONE = "none"
    OPTIONAL = "optional"
    """A client may show none; one that it shows must be trusted."""
    REQUIRE = "require"


class ServerTls(CheckedConfig, frozen=True, kw_only=True):
    """TLS of a server, from PEM files."""

    cert: str | PathLike[str]
    """The server's certificate (with intermediate ones)."""
    key: str | PathLike[str] | None = None
    key_password: KeyPassword | None = None
    client_ca: str | PathLike[str] | None = None
    """File of the authority that signs clients' certificates; None asks clients for none."""
    client_auth: ClientAuth = ClientAuth.REQUIRE
    """Whether clients must show a certificate of `client_ca`."""
    mode: TlsMode = TlsMode.ENFORCING
    """Which connections are taken."""
    alpn: tuple[str, ...] = ()
    """Protocols that handshakes offer, the best first; empty offers none."""

    @property
    def requires_certificates(self) -> bool:
        """Whether every client must show a trusted certificate."""
        return (
            self.client_ca is not None
            and self.client_auth is ClientAuth.REQUIRE
            and self.mode is TlsMode.ENFORCING
        )

    @property
    def files(self) -> "tuple[Path, ...]":
        """The files that the context is made of."""
        named = (self.cert, self.key, self.client_ca)
        return tuple(_path(file) for file in named if file is not None)

    def context(self) -> ssl.SSLContext:
        """The context for `loop.create_server`. ConfigError when a file cannot be used."""
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        context.minimum_version = TLS_1_2
        password = self.key_password.text if self.key_password else None
        _show(context, self.cert, self.key, password, "tls_cert")
        if self.alpn:
            context.set_alpn_protocols(self.alpn)
        if self.client_ca is not None and self.client_auth is not ClientAuth.NONE:
            _trust(context, self.client_ca, "tls_client_ca")
            is_optional = self.client_auth is ClientAuth.OPTIONAL
            context.verify_mode = ssl.CERT_OPTIONAL if is_optional else ssl.CERT_REQUIRED
        return context


def certificate_name(certificate: Mapping[str, Any] | None) -> str | None:
    """The name in a verified certificate, as `SSLSocket.getpeercert` gives it.

    That is the common name of its subject, or else its first alternative name that is a DNS name,
    an address of e-mail or a URI. None without a certificate or such a name.
    """
    if not certificate:
        return None
    subject = (pair for part in certificate.get("subject", ()) for pair in part)
    names = [name for kind, name in subject if kind == "commonName"]
    others = certificate.get("subjectAltName", ())
    names += [name for kind, name in others if kind in ("DNS", "email", "URI")]
    return names[0] if names else None


def tls_error(error: OSError | UnicodeError) -> str:
    """Why a TLS connection failed, and how to mend it."""
    if isinstance(error, ssl.SSLCertVerificationError):
        advice = _OF_ANOTHER_HOST if error.verify_code in _ANOTHER_HOST else _NOT_TRUSTED
        return advice.format(error.verify_message)
    if isinstance(error, ssl.SSLError):
        reason = _fault(error)
        for known, words in _ALERTS.items():
            if known in reason:
                return words.format(reason)
        return f"TLS: {reason}"
    if isinstance(error, ConnectionResetError | ConnectionAbortedError):
        return HUNG_UP
    return address_error(error)


def refused_handshake(error: Exception) -> str:
    """Why a server refused a connection, for its log."""
    if isinstance(error, ssl.SSLCertVerificationError):
        return f"its certificate is not trusted ({error.verify_message}): see tls_client_ca"
    if isinstance(error, ssl.SSLEOFError | ssl.SSLZeroReturnError):
        return "it hung up during the TLS handshake: does it trust our certificate?"
    if isinstance(error, ssl.SSLError):
        return f"the TLS handshake failed: {_fault(error)}"
    return str(error)


def _path(file: str | PathLike[str]) -> "Path":
    from pathlib import Path  # here: a client without TLS does not pay for the import

    return Path(file).expanduser()


def _trust(context: ssl.SSLContext, authority: str | PathLike[str], name: str) -> None:
    try:
        context.load_verify_locations(_path(authority))
    except (OSError, ValueError) as error:
        raise ConfigError(f"{name}: {authority} cannot be used: {_fault(error)}") from None


def _show(
    context: ssl.SSLContext,
    cert: str | PathLike[str],
    key: str | PathLike[str] | None,
    password: str | None,
    name: str,
) -> None:
    def without() -> str:  # OpenSSL would ask for it on the terminal
        raise ConfigError(f"{name}: the key of {cert} has a password: give it")

    key_path = None if key is None else _path(key)
    try:
        context.load_cert_chain(_path(cert), key_path, password or without)
    except (OSError, ValueError) as error:
        pair = cert if key is None else f"{cert} with {key}"
        raise ConfigError(f"{name}: {pair} cannot be used: {_fault(error)}") from None


def _fault(error: Exception) -> str:
    if isinstance(error, ssl.SSLError):
        return (error.reason or str(error)).lower().replace("_", " ")
    return getattr(error, "strerror", None) or str(error)
