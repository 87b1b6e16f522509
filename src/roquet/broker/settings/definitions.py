"""Definitions: every key of broker.conf, ours by the fields of BrokerConfig, and Apache's."""

from collections.abc import Callable, Iterator, Mapping
from typing import Annotated, ClassVar, Final, get_args, get_origin, get_type_hints

import msgspec

from roquet.broker.settings.apache_settings import unused_settings
from roquet.broker.settings.config import BrokerConfig
from roquet.broker.settings.value_formats import Setting, SettingParser
from roquet.model import settings
from roquet.model.errors import ConfigError
from roquet.model.settings import suggest


class FixedSetting(msgspec.Struct, frozen=True):
    """A key of Apache's for which only one value is accepted here."""

    check: Callable[[str, str], None]
    """Raises ConfigError for another value, given (value, its place in the file)."""
    value: str | None
    """Reported to Apache's tools, some of which read it; None for an old key, not reported."""


def _settings() -> Iterator[tuple[str, Setting]]:
    """Settings in the annotations of BrokerConfig, by name, in its order."""
    for name, hint in get_type_hints(BrokerConfig, include_extras=True).items():
        annotated = get_args(hint)[0] if get_origin(hint) is ClassVar else hint
        if get_origin(annotated) is Annotated:
            yield name, get_args(annotated)[1]


def _must_be_off(value: str, where: str) -> None:
    if settings.parse_bool(value, where):
        raise ConfigError(
            f"{where}: only false works: this is the access control of Apache RocketMQ 4.x, and "
            "with it the broker would be open to everybody; set authenticationEnabled and "
            "authorizationEnabled, and name its plain_acl.yml in plain_acl_file"
        )


def _apache_class(*known: str) -> FixedSetting:
    """A key whose value is a Java class, of which the genuine ones stand for what is here."""

    def check(value: str, where: str) -> None:
        name = value.rpartition(".")[2]
        if name and name not in known:
            raise ConfigError(
                f"{where}: {value!r} is a Java class, which cannot run here: leave the key out"
            )

    return FixedSetting(check, "")


SETTINGS: Final[Mapping[str, Setting]] = dict(_settings())
"""Every setting with an effect. `log_path` is only compared with the actual path of the log."""

OWN_NAMES: Final = {key: name for name, setting in SETTINGS.items() for key in setting.apache_keys}
"""Our setting names by Apache's keys."""

FIXED: Final[Mapping[str, FixedSetting]] = {
    "aclEnable": FixedSetting(_must_be_off, "false"),
    "enableAcl": FixedSetting(_must_be_off, None),
    "authenticationProvider": _apache_class("DefaultAuthenticationProvider"),
    "authenticationMetadataProvider": _apache_class("LocalAuthenticationMetadataProvider"),
    "authenticationStrategy": _apache_class(
        "StatelessAuthenticationStrategy", "StatefulAuthenticationStrategy"
    ),
    "authorizationProvider": _apache_class("DefaultAuthorizationProvider"),
    "authorizationMetadataProvider": _apache_class("LocalAuthorizationMetadataProvider"),
    "authorizationStrategy": _apache_class(
        "StatelessAuthorizationStrategy", "StatefulAuthorizationStrategy"
    ),
}
"""Apache's keys for which only one value is accepted here."""


def apache_keys() -> frozenset[str]:
    """Every key of the genuine broker."""
    return frozenset({*unused_settings(), *OWN_NAMES, *FIXED})


def setting_of(key: str, where: str) -> tuple[str | None, SettingParser]:
    """Our name of a setting, by our key or Apache's, and the parser of its value.

    The name is None for a key that only confirms a fixed value. Raises ConfigError, beginning with
    `where`, for a key that neither this broker nor Apache's has.
    """
    ours = key.replace("-", "_")
    if ours in SETTINGS:
        return ours, SETTINGS[ours].parse
    if (name := OWN_NAMES.get(key)) is not None:
        return name, SETTINGS[name].parse_apache
    if (fixed := FIXED.get(key)) is not None:
        return None, fixed.check
    hint = suggest(key, [*SETTINGS, *apache_keys()])
    raise ConfigError(f"{where}: unknown here and in Apache RocketMQ{hint}")
