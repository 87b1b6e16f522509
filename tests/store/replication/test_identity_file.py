"""A broker's id survives a restart, and so does its application for one."""

from pathlib import Path

import pytest
from tests.wire.replication.conftest import VECTORS

from roquet.model.errors import FieldError, StoreError
from roquet.store.filesystem.memory_files import MemoryFiles
from roquet.store.replication import identity_file

GENUINE = (VECTORS / "brokerIdentity").read_text("ascii")
CONFIRMED = identity_file.BrokerIdentity(cluster="C", broker_name="bc", broker_id=1)
APPLIED = identity_file.BrokerIdentity(
    cluster="C", broker_name="bc", broker_id=1, check_code="127.0.0.1:10911;1700000000000"
)


def test_a_genuine_file_is_written_to_the_byte() -> None:
    files, path = MemoryFiles(), Path("/data") / identity_file.FILE_NAME
    files.replace(path, GENUINE.encode())
    identity = identity_file.IdentityFile(path, files).load()
    assert identity is not None
    identity_file.IdentityFile(path, files).save(identity)
    assert files.read(path) == GENUINE.encode()


def test_an_application_stands_beside_the_id_until_it_is_removed(tmp_path: Path) -> None:
    file = identity_file.IdentityFile(tmp_path / identity_file.FILE_NAME)
    application = file.application()
    assert application.path.name == "brokerIdentity-temp"
    assert (file.load(), application.load()) == (None, None)
    application.save(APPLIED)
    file.save(CONFIRMED)
    assert (file.load(), application.load()) == (CONFIRMED, APPLIED)
    application.remove()
    application.remove()
    assert (file.load(), application.load()) == (CONFIRMED, None)


@pytest.mark.parametrize("content", [b"", b"C#bc", b"C#bc#x", b"C#b\xff#1"])
def test_a_damaged_file_is_an_error_that_says_what_to_write(tmp_path: Path, content: bytes) -> None:
    path = tmp_path / identity_file.FILE_NAME
    path.write_bytes(content)
    with pytest.raises(StoreError, match="cluster#name#id"):
        identity_file.IdentityFile(path).load()


def test_a_name_that_would_make_the_file_ambiguous_is_not_written(tmp_path: Path) -> None:
    file = identity_file.IdentityFile(tmp_path / identity_file.FILE_NAME)
    with pytest.raises(FieldError):
        file.save(identity_file.BrokerIdentity(cluster="C#D", broker_name="bc", broker_id=1))
    assert file.load() is None


def test_a_directory_that_fails_is_an_error_of_the_store(tmp_path: Path) -> None:
    (tmp_path / identity_file.FILE_NAME).mkdir()
    with pytest.raises(StoreError):
        identity_file.IdentityFile(tmp_path / identity_file.FILE_NAME).load()
    with pytest.raises(StoreError):
        identity_file.IdentityFile(tmp_path / "missing" / identity_file.FILE_NAME).remove()


def test_a_genuine_file_is_read_and_written_to_the_byte() -> None:
    identity = identity_file.decode_identity(GENUINE)
    assert identity == identity_file.BrokerIdentity(cluster="C", broker_name="bc", broker_id=1)
    assert identity.text() == GENUINE


def test_an_application_has_a_check_code() -> None:
    code = identity_file.check_code("127.0.0.1:21941", 1_795_364_362_996)
    assert code == "127.0.0.1:21941;1795364362996", "as the genuine broker has it in request 1013"
    applying = identity_file.BrokerIdentity(
        cluster="C", broker_name="bc", broker_id=1, check_code=code
    )
    assert applying.text() == f"C#bc#1#{code}"
    assert identity_file.decode_identity(applying.text()) == applying


@pytest.mark.parametrize(
    "text", ["", "C#bc", "C#bc#", "#bc#1", "C##1", "C#bc#x", "C#bc#-1", "C#bc#1#", "C#bc#1#a;1#b"]
)
def test_a_damaged_file_is_refused(text: str) -> None:
    with pytest.raises(FieldError, match="broker identity"):
        identity_file.decode_identity(text)


@pytest.mark.parametrize(("cluster", "name"), [("a#b", "c"), ("a", "b#c"), ("", "c"), ("a", "")])
def test_names_that_would_be_read_as_others_are_refused(cluster: str, name: str) -> None:
    with pytest.raises(FieldError, match="may not be empty"):
        identity_file.BrokerIdentity(cluster=cluster, broker_name=name, broker_id=1).text()
