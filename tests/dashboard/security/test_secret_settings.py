import pytest

from roquet.broker.settings.definitions import SETTINGS
from roquet.broker.settings.value_formats import HIDDEN
from roquet.dashboard.security.secret_settings import shown_value


@pytest.mark.parametrize("key", ["innerClientAuthenticationCredentials", "tls_key_password"])
def test_values_of_secret_settings_are_hidden(key: str) -> None:
    assert shown_value(key, "x") == HIDDEN
    assert shown_value(key, "") == ""


def test_every_secret_of_our_broker_is_known() -> None:
    for name, setting in SETTINGS.items():
        for key in (name, *setting.apache_keys):
            assert not setting.is_secret or shown_value(key, "x") == HIDDEN, key
    assert shown_value("brokerName", "a") == "a"
