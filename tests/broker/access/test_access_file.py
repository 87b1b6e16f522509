"""The file of users and policies."""

from pathlib import Path

import pytest

from roquet.broker.access.access_file import AccessFile
from roquet.model.access import AccessTables, User, UserType
from roquet.model.errors import StoreError
from roquet.store.filesystem.files import RealFiles

TABLES = AccessTables(users={"root": User(name="root", password="p", user_type=UserType.SUPER)})


@pytest.fixture
def file(tmp_path: Path) -> AccessFile:
    return AccessFile(RealFiles(), tmp_path / "config" / "access.json")


def test_what_was_written_is_read_again_by_its_owner_alone(file: AccessFile) -> None:
    assert file.read() is None
    file.write(TABLES)
    assert file.read() == TABLES
    assert file.path.stat().st_mode & 0o777 == 0o600
    assert [path.name for path in file.path.parent.iterdir()] == ["access.json"]


def test_a_readable_file_becomes_private_with_the_next_change(file: AccessFile) -> None:
    file.write(TABLES)
    file.path.chmod(0o644)
    file.write(TABLES)
    assert file.path.stat().st_mode & 0o777 == 0o600


def test_only_what_somebody_else_has_written_is_a_change(file: AccessFile) -> None:
    file.write(TABLES)
    assert file.changed() is None
    bob = AccessTables(users={"bob": User(name="bob", password="p")})
    AccessFile(RealFiles(), file.path).write(bob)
    assert file.changed() == bob
    assert file.changed() is None
    file.path.unlink()
    assert file.changed() is None


def test_a_file_without_users_is_one_at_the_start_alone(file: AccessFile) -> None:
    AccessFile(RealFiles(), file.path).write(AccessTables())
    with pytest.raises(StoreError, match="has no user in it"):
        file.changed()
    assert file.read() == AccessTables()


def test_a_broken_file_is_named_without_its_content(file: AccessFile) -> None:
    file.write(TABLES)
    file.path.write_text('{"users":[{"username":"root","password":"hush-hush"')
    for read in (file.read, file.changed, file.changed):
        with pytest.raises(StoreError, match=r"access\.json cannot be used: .*; mend it") as error:
            read()
        assert "hush" not in str(error.value)


def test_a_path_that_is_no_file_is_an_error(file: AccessFile) -> None:
    file.path.mkdir(parents=True)
    with pytest.raises(StoreError, match="cannot be used"):
        file.read()
