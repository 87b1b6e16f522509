"""AccessOptions: how Spark's driver and workers sign their requests and secure their connections.

Reads and writes take the same options. What they leave out comes from the environment of the
process that connects (ROCKETMQ_ACCESS_KEY, ROCKETMQ_TLS_CA, …), as for all clients.
"""

import os
from collections.abc import Callable, Mapping
from types import MappingProxyType
from typing import TYPE_CHECKING, Any, Final

import msgspec

from roquet.model.errors import ConfigError
from roquet.model.settings import parse_bool

if TYPE_CHECKING:
    from roquet.net.channel import Security

ENVIRONMENT_PREFIX: Final = "ROCKETMQ_"


class AccessOptions(msgspec.Struct, frozen=True, kw_only=True):
    """Keys and certificates of a read or a write; the printed form does not contain secrets."""

    access_key: str | None = None
    """The user who signs requests."""
    secret_key: str | None = None
    """The user's secret; Spark hides it in its web page, as it hides every option of such a
    name."""
    security_token: str | None = None
    """Token of temporary keys."""
    tls: bool | None = None
    """Whether connections are secured by TLS; they are without it where a file of TLS is named."""
    tls_ca: str | None = None
    """File of the authority that signs the servers' certificates, on the driver and on each
    worker; the authorities of the machine are trusted without it."""
    tls_cert: str | None = None
    """File of the certificate for servers that ask for one."""
    tls_key: str | None = None
    """File of its private key."""
    tls_server_name: str | None = None
    """The name that certificates must be for; the host of each address without it."""
    tls_check_host: bool = True
    """Whether a certificate must be for the host that presents it."""
    tls_verify: bool = True
    """`false` accepts any certificate: anybody can pose as the server."""

    def __repr__(self) -> str:
        return f"AccessOptions(access_key={self.access_key!r}, tls={self.tls}, …)"

    def security(self, environ: Mapping[str, str] | None = None) -> "Security":
        """Security of connections; an environment of None is that of this process.

        Raises ConfigError for a file that cannot be used, and for a key without its secret.
        """
        given = os.environ if environ is None else environ
        if self == _NOTHING and not any(name.startswith(ENVIRONMENT_PREFIX) for name in given):
            from roquet.net.channel import PLAIN

            return PLAIN  # without loading the client, which most workers do not need
        from roquet.client.config import ClientConfig
        from roquet.client.connection.security import connection_security
        from roquet.net.tls import Tls

        tls: Tls | bool | None = self.tls
        if tls is not False and (tls or self.tls_ca or self.tls_cert):
            tls = Tls(
                ca=self.tls_ca,
                cert=self.tls_cert,
                key=self.tls_key,
                server_name=self.tls_server_name,
                check_host=self.tls_check_host,
                verify=self.tls_verify,
            )
        config = ClientConfig(
            access_key=self.access_key,
            secret_key=self.secret_key,
            security_token=self.security_token,
            tls=tls,
        )
        return connection_security(config, given)


_NOTHING: Final = AccessOptions()


def take_access(options: Mapping[str, str]) -> tuple[dict[str, str], AccessOptions]:
    """Options without those of access, and the latter. Raises ConfigError."""
    known = {name.lower(): name for name in _READERS}
    others, fields = dict[str, str](), dict[str, Any]()
    for option, text in options.items():
        name = known.get(option.lower())
        if name is None:
            others[option] = text
        else:
            field, read = _READERS[name]
            fields[field] = read(text, name)
    return others, AccessOptions(**fields)


def nonempty(text: str, name: str) -> str:
    """The text of an option without blanks around it; ConfigError for one that is empty."""
    if not text.strip():
        raise ConfigError(f"option {name!r} is empty")
    return text.strip()


_READERS: Final[Mapping[str, tuple[str, Callable[[str, str], Any]]]] = MappingProxyType(
    {
        "accessKey": ("access_key", nonempty),
        "secretKey": ("secret_key", nonempty),
        "securityToken": ("security_token", nonempty),
        "tls": ("tls", parse_bool),
        "tlsCa": ("tls_ca", nonempty),
        "tlsCert": ("tls_cert", nonempty),
        "tlsKey": ("tls_key", nonempty),
        "tlsServerName": ("tls_server_name", nonempty),
        "tlsCheckHost": ("tls_check_host", parse_bool),
        "tlsVerify": ("tls_verify", parse_bool),
    }
)

ACCESS_OPTIONS: Final = tuple(_READERS)
