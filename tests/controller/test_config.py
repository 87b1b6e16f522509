import pytest

from roquet.controller.config import ControllerConfig
from roquet.model.errors import ConfigError


def test_without_settings_it_listens_where_apaches_documents_say_and_keeps_nothing() -> None:
    config = ControllerConfig()
    assert (config.port, config.store, config.elect_unclean_master) == (9878, "memory", False)


@pytest.mark.parametrize(
    ("settings", "text"),
    [
        ({"lease_ms": 99}, "lease_ms: 99 is less than 100"),
        ({"scan_ms": 0}, "scan_ms: 0 is less than 1"),
        ({"scan_ms": 10**400}, "is more than 86400000, a day"),
        ({"lease_ms": 86_400_001}, "lease_ms: 86400001 is more than 86400000, a day"),
        ({"port": -1}, "port: -1 is less than 0"),
        ({"stroe": "memory"}, "did you mean 'store'"),
        ({"store": 3}, "store: 3 is not a text"),
    ],
)
def test_settings_of_no_use_are_refused(settings: dict[str, int], text: str) -> None:
    with pytest.raises(ConfigError, match=text):
        ControllerConfig(**settings)  # type: ignore[arg-type]
