import re

import pytest

from roquet.broker.settings.apache_settings import (
    UnusedSetting,
    check_unused_setting,
    parse_unused_settings,
    unused_settings,
)
from roquet.broker.settings.definitions import OWN_NAMES, SETTINGS
from roquet.model.errors import ConfigError


def test_a_heading_is_the_reason_of_the_keys_below_it() -> None:
    text = "# not a reason\n\n## Because.\na=1\nb\nc=\n\n## Otherwise.\nd=x=y\n"
    assert parse_unused_settings(text) == {
        "a": UnusedSetting("Because.", "1"),
        "b": UnusedSetting("Because.", None),
        "c": UnusedSetting("Because.", ""),
        "d": UnusedSetting("Otherwise.", "x=y"),
    }


def test_every_setting_without_effect_has_a_reason() -> None:
    found = unused_settings()
    assert len(found) > 400
    assert {
        s.reason for s in found.values() if not re.fullmatch(r"[A-Z].{20,}[.]", s.reason)
    } == set()
    assert found.keys() & (OWN_NAMES.keys() | SETTINGS.keys()) == set()


@pytest.mark.parametrize(
    ("key", "good", "bad", "why"),
    [
        ("enableLmq", "TRUE", "1", "neither true nor false"),
        ("forwardTimeout", "-1", "", "not a number"),
        ("logicalDiskSpaceCleanForciblyThreshold", "0.5", "half", "not a number"),
        ("forwardTimeout", "7", "\u0667", "not a number"),
    ],
)
def test_a_value_is_of_the_kind_of_the_default(key: str, good: str, bad: str, why: str) -> None:
    check_unused_setting(key, good)
    with pytest.raises(ConfigError, match=f"{key}: .*{why}"):
        check_unused_setting(key, bad)


def test_a_text_or_a_key_without_a_default_takes_any_value() -> None:
    check_unused_setting("storeType", "defaultRocksDB")
    check_unused_setting("brokerIP2", "10.0.0.1:10912")
