"""Secret settings: settings of brokers whose values are neither shown nor logged."""

from typing import Final

from roquet.broker.settings.definitions import OWN_NAMES, SETTINGS
from roquet.broker.settings.value_formats import HIDDEN

SECRET_PARTS: Final = ("password", "secret", "credential", "initauthenticationuser")
"""Parts of keys, in lower case: Apache's brokers report the values as they are."""


def shown_value(key: str, value: str) -> str:
    """A setting's value as pages and the audit log show it; a secret is `HIDDEN`."""
    own = SETTINGS.get(OWN_NAMES.get(key, key))
    is_secret = any(part in key.lower() for part in SECRET_PARTS)
    return HIDDEN if value and (is_secret or (own is not None and own.is_secret)) else value
