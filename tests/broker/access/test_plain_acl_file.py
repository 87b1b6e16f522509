"""plain_acl.yml of Apache RocketMQ 4 beside the users of a running broker."""

import logging
from pathlib import Path

import pytest

from roquet.broker.access.access_control import AccessControl
from roquet.broker.access.access_file import AccessFile
from roquet.broker.access.plain_acl_file import PlainAclFile
from roquet.broker.settings.config import BrokerConfig
from roquet.model.access import User, UserStatus
from roquet.model.errors import ConfigError
from roquet.rules.access.changes import (
    AccessChangeRefused,
    UserChange,
    delete_user,
    update_user,
)
from roquet.store.filesystem.files import RealFiles

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
def file(tmp_path: Path) -> AccessFile:
    return AccessFile(RealFiles(), tmp_path / "access.json")


@pytest.fixture
def config(path: Path) -> BrokerConfig:
    return BrokerConfig(
        authentication_enabled=True, authorization_enabled=True, plain_acl_file=path
    )


def test_a_broker_without_other_users_starts_with_those_of_the_file(
    config: BrokerConfig, file: AccessFile
) -> None:
    control = AccessControl(config, file)
    assert control.tables.users.keys() == {"boss"}
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


async def test_the_brokers_own_file_changes_beside_it(
    config: BrokerConfig, file: AccessFile
) -> None:
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
