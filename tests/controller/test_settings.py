import pytest

from roquet.controller.config import ControllerConfig
from roquet.controller.settings import (
    SETTINGS,
    changed_settings,
    read_settings,
    shown_settings,
    warn_of_no_effect,
)
from roquet.model.errors import ConfigError

GENUINE = {
    "controllerDLegerGroup": "g1",
    "controllerDLegerPeers": "n0-127.0.0.1:9878",
    "controllerDLegerSelfId": "n0",
    "controllerStorePath": "/data/controller",
    "enableElectUncleanMaster": "true",
    "notifyBrokerRoleChanged": "false",
    "scanNotActiveBrokerInterval": "3000",
}


def test_a_file_of_apaches_controller_is_read(caplog: pytest.LogCaptureFixture) -> None:
    config = read_settings(GENUINE, "controller.conf")
    assert (config.controllers, config.controller_id) == ("g1", "n0")
    assert (config.store, config.scan_ms) == ("file:/data/controller", 3_000)
    assert (config.elect_unclean_master, config.notify_role_changes) == (True, False)
    (warning,) = caplog.messages
    assert warning.startswith("controller.conf: controllerDLegerPeers has no effect")
    assert "etcd" in warning


def test_a_setting_without_effect_is_told_unless_it_is_the_default(
    caplog: pytest.LogCaptureFixture,
) -> None:
    warn_of_no_effect("c: mappedFileSize", "mappedFileSize", "1073741824")
    assert caplog.messages == []
    warn_of_no_effect("c: mappedFileSize", "mappedFileSize", "1")
    assert caplog.messages == ["c: mappedFileSize=1 has no effect here"]


@pytest.mark.parametrize(
    ("key", "value", "text"),
    [
        ("listenPrt", "1", "did you mean 'listenPort'"),
        ("listenPort", "many", "c: listenPort: 'many' is not a whole number"),
        ("enableElectUncleanMaster", "maybe", "neither true nor false"),
        ("controllerLeaseMillis", "999", "^c: controllerLeaseMillis: a lease of 999 ms is too"),
        ("controllerLeaseMillis", "1", "the smallest is 1000 ms"),
    ],
)
def test_a_wrong_line_is_refused(key: str, value: str, text: str) -> None:
    with pytest.raises(ConfigError, match=text):
        read_settings({key: value}, "c")


def test_a_lease_of_a_second_is_taken() -> None:
    assert read_settings({"controllerLeaseMillis": "1000"}, "c").lease_ms == 1_000


def test_what_is_shown_can_be_read_again() -> None:
    config = read_settings(GENUINE, "c")
    shown = shown_settings(config)
    assert GENUINE.items() <= shown.items()
    keys = {key: shown[key] for key in SETTINGS if shown[key]}
    again = read_settings({**keys, "controllerDLegerPeers": "n0-127.0.0.1:9878"}, "c")
    assert again == config


def test_some_settings_change_while_it_runs() -> None:
    config = changed_settings(
        ControllerConfig(),
        {"enableElectUncleanMaster": "true", "nobodyKnows": "1", "isProcessReadEvent": "true"},
    )
    assert config.elect_unclean_master
    assert config.unused == {"isProcessReadEvent": "true"}
    assert changed_settings(config, {"listenPort": "9878"}) == config, "as it is"


def test_others_wait_for_a_restart_and_then_nothing_is_changed() -> None:
    with pytest.raises(ConfigError, match="listenPort is read at the start"):
        changed_settings(
            ControllerConfig(), {"enableElectUncleanMaster": "true", "listenPort": "1"}
        )
