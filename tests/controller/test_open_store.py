from pathlib import Path

import pytest

from roquet.controller.config import ControllerConfig
from roquet.controller.open_store import open_store
from roquet.controller.state_store.etcd import EtcdStore
from roquet.controller.state_store.file import FileStore
from roquet.controller.state_store.memory import MemoryStore
from roquet.model.errors import ConfigError
from roquet.net.tls import Tls


async def test_each_kind_of_store_has_a_name(tmp_path: Path) -> None:
    for text, kind in (
        ("memory", MemoryStore),
        (f"file:{tmp_path}", FileStore),
        ("etcd:h:1,[::1]:2", EtcdStore),
        ("etcd+https:h:1", EtcdStore),
    ):
        store = open_store(ControllerConfig(store=text))
        assert type(store) is kind
        await store.close()


@pytest.mark.parametrize(
    "text", ["", "file", "file:", "etcd", "etcd:", "etcd:h", "etcd+https:h", "zookeeper:h:1"]
)
def test_any_other_name_is_refused(text: str) -> None:
    with pytest.raises(ConfigError, match="store: "):
        open_store(ControllerConfig(store=text))


def test_tls_of_etcd_needs_a_store_that_is_called_by_it(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match=r"is not called by TLS: write etcd.https:HOST:PORT"):
        ControllerConfig(store="etcd:h:1", etcd_tls=Tls())
    with pytest.raises(ConfigError, match=r"tls.ca: .* cannot be used"):
        open_store(ControllerConfig(store="etcd+https:h:1", etcd_tls=Tls(ca=tmp_path / "no.pem")))


@pytest.mark.parametrize("group", ["", "a/b", "a\n"])
def test_a_name_of_controllers_that_is_no_part_of_a_key_is_refused(group: str) -> None:
    with pytest.raises(ConfigError, match="cannot be a part of etcd's keys"):
        open_store(ControllerConfig(store="etcd:h:1", controllers=group))
