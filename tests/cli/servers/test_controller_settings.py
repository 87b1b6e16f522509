from pathlib import Path

import pytest

from roquet.cli.servers.controller_settings import (
    DEFAULT_STORE,
    configured,
    load_settings,
    read_file,
)
from roquet.controller.config import ControllerConfig
from roquet.model.errors import ConfigError


def test_a_store_that_nobody_named_survives_a_restart() -> None:
    assert configured(ControllerConfig(), {"store": None}, None).store == DEFAULT_STORE
    assert configured(ControllerConfig(), {"store": "memory"}, None).store == "memory"
    loaded = ControllerConfig(store="etcd:h:1", port=7)
    assert configured(loaded, {"port": None}, None) == loaded
    assert configured(loaded, {"port": 8}, None).port == 8


def test_a_file_that_cannot_be_read_is_named(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="none: cannot be read"):
        read_file(tmp_path / "none")
    path = tmp_path / "c"
    path.write_text("listenPort=3\n")
    assert load_settings(path).port == 3
