from collections import Counter

import pytest

from roquet.broker.settings.apache_settings import unused_settings
from roquet.broker.settings.config import BrokerConfig
from roquet.broker.settings.definitions import FIXED, OWN_NAMES, SETTINGS, apache_keys, setting_of
from roquet.model.errors import ConfigError


def test_every_field_of_the_config_is_a_setting() -> None:
    fields = set(BrokerConfig.__struct_fields__)
    assert fields - SETTINGS.keys() == {"unused", "source"}, "not settings, but where they are from"
    assert SETTINGS.keys() - fields == {"log_path"}, "only compared"


def test_a_key_of_apaches_has_one_meaning() -> None:
    keys = Counter(key for setting in SETTINGS.values() for key in setting.apache_keys)
    keys.update([*FIXED, *unused_settings()])
    assert {key: count for key, count in keys.items() if count > 1} == {}
    assert keys.keys() == apache_keys()


def test_a_key_is_looked_up_in_either_format() -> None:
    for key, text in (("retention", "2h"), ("fileReservedTime", "2")):
        name, parse = setting_of(key, key)
        assert (name, parse(text, key)) == ("retention", 2 * 3_600_000)
    assert setting_of("delete-hour", "f")[0] == OWN_NAMES["deleteWhen"] == "delete_hour"
    assert setting_of("aclEnable", "f")[0] is None
    with pytest.raises(ConfigError, match=r"^f line 3: unknown here .* did you mean 'retention'"):
        setting_of("retentoin", "f line 3")


@pytest.mark.parametrize(
    ("key", "good", "bad"), [("aclEnable", "false", "true"), ("enableAcl", "false", "yes")]
)
def test_the_access_control_of_older_versions_is_refused(key: str, good: str, bad: str) -> None:
    FIXED[key].check(good, key)
    with pytest.raises(ConfigError, match=f"{key}: only {good} works"):
        FIXED[key].check(bad, key)


def test_of_java_classes_only_those_that_stand_for_ours_are_accepted() -> None:
    check = FIXED["authenticationMetadataProvider"].check
    check("", "f")
    check(
        "org.apache.rocketmq.auth.authentication.provider.LocalAuthenticationMetadataProvider", "f"
    )
    with pytest.raises(ConfigError, match=r"f: 'com\.example\.Mine' is a Java class"):
        check("com.example.Mine", "f")


def test_every_apache_key_is_known() -> None:
    assert {"brokerName", "storeType", "serverSelectorThreads", "timerWheelEnable"} < apache_keys()
    assert len(apache_keys()) > 450
