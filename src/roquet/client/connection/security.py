"""Security: request signing and TLS, from a client's settings and the environment."""

from collections.abc import Mapping
from os import PathLike
from typing import TYPE_CHECKING, Final

from roquet.client.config import ClientConfig
from roquet.model.errors import ConfigError
from roquet.model.settings import parse_bool
from roquet.net.channel import Security
from roquet.net.tls import Tls

if TYPE_CHECKING:
    from roquet.wire.signing import Credentials

ACCESS_KEY_VARIABLE: Final = "ROCKETMQ_ACCESS_KEY"
SECRET_KEY_VARIABLE: Final = "ROCKETMQ_SECRET_KEY"
SECURITY_TOKEN_VARIABLE: Final = "ROCKETMQ_SECURITY_TOKEN"
TLS_VARIABLE: Final = "ROCKETMQ_TLS"
TLS_CA_VARIABLE: Final = "ROCKETMQ_TLS_CA"
TLS_CERT_VARIABLE: Final = "ROCKETMQ_TLS_CERT"
TLS_KEY_VARIABLE: Final = "ROCKETMQ_TLS_KEY"
TLS_SERVER_NAME_VARIABLE: Final = "ROCKETMQ_TLS_SERVER_NAME"


def connection_security(config: ClientConfig, environ: Mapping[str, str]) -> Security:
    """The security of a client's connections; ConfigError when a setting cannot be used."""
    credentials, tls = resolve_credentials(config, environ), resolve_tls(config, environ)
    signer = None
    if credentials is not None:
        from roquet.wire.signing import Signer  # here: most clients sign nothing

        signer = Signer(credentials)
    return Security(
        context=tls.context() if tls else None,
        server_name=tls.server_name if tls else None,
        signer=signer,
    )


def resolve_credentials(config: ClientConfig, environ: Mapping[str, str]) -> "Credentials | None":
    """The signing keys, from the settings or else from the environment; None without any."""
    access = _stripped(config.access_key)
    token = _stripped(config.security_token)
    if not access:
        access = _stripped(environ.get(ACCESS_KEY_VARIABLE))
        # A token belongs to its keys: do not combine one of the environment with keys of the
        # settings.
        token = token or _stripped(environ.get(SECURITY_TOKEN_VARIABLE))
    secret = _stripped(config.secret_key) or _stripped(environ.get(SECRET_KEY_VARIABLE))
    if not access and not secret:
        return None
    if not access:
        raise ConfigError(f"a secret key without access_key (or {ACCESS_KEY_VARIABLE})")
    if not secret:
        raise ConfigError(f"access key {access} without secret_key (or {SECRET_KEY_VARIABLE})")
    from roquet.wire.signing import Credentials

    return Credentials(access_key=access, secret_key=secret, security_token=token or None)


def resolve_tls(config: ClientConfig, environ: Mapping[str, str]) -> Tls | None:
    """The TLS settings, or else those of the environment; None without TLS."""
    match config.tls:
        case Tls():
            return config.tls
        case str() | PathLike():
            return Tls(ca=config.tls)
        case None:
            wanted = environ.get(TLS_VARIABLE)
            files = any(environ.get(name) for name in (TLS_CA_VARIABLE, TLS_CERT_VARIABLE))
            if not (parse_bool(wanted, TLS_VARIABLE) if wanted else files):
                return None
        case False:
            return None
        case True:
            pass
    return Tls(
        ca=environ.get(TLS_CA_VARIABLE) or None,
        cert=environ.get(TLS_CERT_VARIABLE) or None,
        key=environ.get(TLS_KEY_VARIABLE) or None,
        server_name=environ.get(TLS_SERVER_NAME_VARIABLE) or None,
    )


def _stripped(text: str | None) -> str:
    """The text without the line break at the end of a key file, as Java trims it."""
    return (text or "").strip()
