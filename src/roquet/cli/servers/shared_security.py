"""Shared security: TLS and users of a whole `roquet serve`, from the settings of its brokers.

Its name server and controllers have no broker.conf: they get what it says as options. A file of
their own, in their directory, takes the place of that. Their users are those of one file for all.
"""

from pathlib import Path
from typing import TYPE_CHECKING, Final

from roquet.broker.settings.config import BrokerConfig
from roquet.model.errors import ConfigError
from roquet.net.tls import Tls, TlsMode

if TYPE_CHECKING:
    from roquet.client.config import ClientConfig

_NO_OTHER_CALLS: Final = (
    "the name server and controllers of `roquet serve` call brokers with tls_ca and the certificate"
    " of the brokers' servers alone: with tls_client_cert, tls_check_host, tls_verify, or with"
    " tls.enable and no tls_ca, give each a {} in its directory below --data"
)
_NO_PASSWORD: Final = (
    "tls_key_password: the name server and controllers of `roquet serve` get no password of a key:"
    " give each a {} in its directory below --data, with tls.server.keyPassword"
)


def security_options(
    directory: Path, own_config: str, brokers: BrokerConfig | None, access_file: Path | None = None
) -> list[str]:
    """Options of a name server or controller: a file of its own, else the TLS of the brokers.

    With `access_file` it checks users. Raises ConfigError.
    """
    access = [] if access_file is None else ["--access-file", str(access_file)]
    own = directory / own_config
    if own.exists():
        return ["--config", str(own), *access]
    if brokers is None:
        return access
    options = _tls_options(brokers, own_config)
    if access and brokers.certificate_users and "--tls-client-ca" in options:
        access.append("--certificate-users")
    return [*options, *access]


def name_server_options(
    directory: Path, own_config: str, brokers: BrokerConfig | None, access_file: Path | None = None
) -> list[str]:
    """Options of a name server: those of security, and what controllers do not have."""
    options = security_options(directory, own_config, brokers, access_file)
    if brokers is not None and brokers.proxy_protocol_from and "--config" not in options:
        options += ["--proxy-from", ",".join(brokers.proxy_protocol_from)]
    return options


def client_config(brokers: BrokerConfig | None) -> "ClientConfig":
    """Settings by which `roquet serve` asks its own servers, beside those of the environment."""
    from roquet.client.config import ClientConfig

    if brokers is None:
        return ClientConfig()
    credentials = brokers.inner_credentials
    return ClientConfig(
        tls=brokers.calls_tls,
        access_key=credentials.access_key if credentials else None,
        secret_key=credentials.secret_key if credentials else None,
    )


def _tls_options(brokers: BrokerConfig, own_config: str) -> list[str]:
    tls = brokers.server_tls
    if tls is None or tls.mode is TlsMode.DISABLED:
        return []
    if tls.key_password is not None:
        raise ConfigError(_NO_PASSWORD.format(own_config))
    options = ["--tls-cert", str(tls.cert), "--tls-mode", tls.mode.value]
    if tls.key is not None:
        options += ["--tls-key", str(tls.key)]
    if tls.client_ca is not None:
        auth = tls.client_auth.value
        options += ["--tls-client-ca", str(tls.client_ca), "--tls-client-auth", auth]
    if (calls := brokers.calls_tls) is not None:
        if calls.ca is None or calls != Tls(ca=calls.ca, cert=tls.cert, key=tls.key):
            raise ConfigError(_NO_OTHER_CALLS.format(own_config))
        options += ["--tls-ca", str(calls.ca)]
    return options
