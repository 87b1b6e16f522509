"""The file of users and policies."""

import logging
from pathlib import Path

import pytest

from roquet.broker.access.access_control import AccessControl
from roquet.broker.access.access_file import AccessFile, PlainAclFile
from roquet.broker.settings.config import BrokerConfig
from roquet.model.access import AccessTables, User, UserStatus, UserType
from roquet.model.errors import ConfigError, StoreError
from roquet.rules.access.changes import AccessChangeRefused, UserChange, delete_user, update_user
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


BOSS = "accounts: [{accessKey: boss, secretKey: bosssecret, admin: true}]"
SHOP = "accounts: [{accessKey: shop, secretKey: shopsecret, whiteRemoteAddress: 10.0.0.1}]"


def write(path: Path, content: str) -> None:
    path.write_text(content)


def remove(path: Path) -> None:
    path.unlink()


@pytest.fixture
def path(tmp_path: Path) -> Path:
    path = tmp_path / "plain_acl.yml"
    path.write_text(BOSS)
    return path


@pytest.fixture
def config(path: Path) -> BrokerConfig:
    return BrokerConfig(
        authentication_enabled=True, authorization_enabled=True, plain_acl_file=path
    )


def test_a_broker_starts_with_the_users_of_the_file(config: BrokerConfig, file: AccessFile) -> None:
    assert AccessControl(config, file).tables.users.keys() == {"boss"}
    assert not file.path.exists()


async def test_a_changed_file_is_taken_over_and_a_broken_one_is_not(
    config: BrokerConfig, file: AccessFile, path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    control = AccessControl(config, file)
    write(path, SHOP)
    caplog.set_level(logging.INFO)
    await control.reload(0)
    await control.reload(0)
    assert control.tables.users.keys() == {"shop"}
    assert "shop: whiteRemoteAddress 10.0.0.1 is not kept" in caplog.text
    assert "shopsecret" not in caplog.text
    before = control.tables
    await control.reload(0)
    assert control.tables is before
    for content in ("accounts: [", "accounts: [{accessKey: a}]"):
        write(path, content)
        await control.reload(0)
        await control.reload(0)
    remove(path)
    await control.reload(0)
    assert control.tables is before
    assert caplog.text.count("users and policies stay as they were") == 3


async def test_a_file_that_is_being_written_takes_nothing_away_from_what_is_denied(
    config: BrokerConfig, file: AccessFile, path: Path
) -> None:
    rights = "accounts:\n- accessKey: shop\n  secretKey: shopsecret\n  defaultTopicPerm: PUB|SUB\n"
    whole = f"{rights}  topicPerms:\n  - salaries=DENY\n"
    write(path, whole)
    control = AccessControl(config, file)
    before = control.tables
    assert "salaries" in str(before.acls["shop"])
    write(path, rights)
    await control.reload(0)
    write(path, whole)
    await control.reload(0)
    assert control.tables is before
    write(path, rights)
    await control.reload(0)
    await control.reload(0)
    assert "salaries" not in str(control.tables.acls["shop"])


async def test_a_changed_account_is_saved_and_hides_that_of_the_file(
    config: BrokerConfig, file: AccessFile
) -> None:
    control = AccessControl(config, file)
    boss = control.tables.users["boss"]
    await control.change(
        lambda tables: update_user(tables, boss, "boss", UserChange(status="disable"))
    )
    again = AccessControl(config, AccessFile(RealFiles(), file.path))
    assert again.tables.users["boss"].status is UserStatus.DISABLE
    with pytest.raises(AccessChangeRefused, match="remove it there"):
        await control.change(lambda tables: delete_user(tables, boss, "boss"))


async def test_the_own_file_changes_beside_it(config: BrokerConfig, file: AccessFile) -> None:
    control = AccessControl(config, file)
    bob = User(name="bob", password="b")
    other = AccessControl(config, AccessFile(RealFiles(), file.path))
    await other.change(
        lambda tables: type(tables)(users={**tables.users, "bob": bob}, acls=tables.acls)
    )
    await control.reload(0)
    assert control.tables.users.keys() == {"boss", "bob"}


def test_a_file_that_cannot_be_used_stops_the_start(path: Path) -> None:
    path.write_text("accounts: [{accessKey: a}]")
    with pytest.raises(ConfigError, match=r"account 1 \(a\): password can not be blank; mend it"):
        PlainAclFile(path).read()
    with pytest.raises(ConfigError, match="set authenticationEnabled=true and"):
        BrokerConfig(plain_acl_file=path)
