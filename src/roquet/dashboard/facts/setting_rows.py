"""Setting rows: the settings of a broker, and which of them may change while it runs."""

from collections.abc import Mapping

import msgspec

from roquet.broker.settings.apache_settings import unused_settings
from roquet.broker.settings.definitions import FIXED, OWN_NAMES, SETTINGS
from roquet.dashboard.security.secret_settings import shown_value


class SettingRow(msgspec.Struct, frozen=True, kw_only=True):
    """One setting of a broker."""

    key: str
    value: str
    may_change: bool | None
    """Whether it can change while the broker runs; None for a broker that does not say."""


def setting_rows(values: Mapping[str, str], query: str = "") -> list[SettingRow]:
    """Settings as a broker reports them, whose keys contain a text in any case.

    Those of Apache's that have no effect on Roquet's broker are left out.
    """
    is_ours = reports_own_settings(values)
    return [
        SettingRow(
            key=key, value=shown_value(key, value), may_change=_may_change(key) if is_ours else None
        )
        for key, value in values.items()
        if query.lower() in key.lower() and not (is_ours and key in unused_settings())
    ]


def reports_own_settings(values: Mapping[str, str]) -> bool:
    """Whether a broker reports settings that Apache RocketMQ does not have."""
    return any(name in values for name, setting in SETTINGS.items() if not setting.apache_keys)


def _may_change(key: str) -> bool:
    setting = SETTINGS.get(OWN_NAMES.get(key, key))
    return setting is not None and not setting.needs_restart and key not in FIXED
