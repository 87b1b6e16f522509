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
from roquet.net.tls import ServerTls, Tls, TlsMode


def test_a_store_that_nobody_named_survives_a_restart() -> None:
    assert configured(ControllerConfig(), {"store": None}).store == DEFAULT_STORE
    assert configured(ControllerConfig(), {"store": "memory"}).store == "memory"
    loaded = ControllerConfig(store="etcd:h:1", port=7)
    assert configured(loaded, {"port": None}) == loaded
    assert configured(loaded, {"port": 8}).port == 8


def test_a_file_that_cannot_be_read_is_named(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="none: cannot be read"):
        read_file(tmp_path / "none")
    path = tmp_path / "c"
    path.write_text("listenPort=3\n")
    assert load_settings(path).port == 3


def test_a_file_may_have_the_keys_of_tls(tmp_path: Path) -> None:
    path = tmp_path / "controller.conf"
    path.write_text("listenPort=5\ntls.server.certPath=/c.pem\ntls.enable=true\n")
    loaded = load_settings(path)
    assert (loaded.port, loaded.tls) == (
        5, ServerTls(cert=Path("/c.pem"), mode=TlsMode.PERMISSIVE)
    )  # fmt: skip
    assert loaded.calls == Tls(check_host=False, verify=False)
