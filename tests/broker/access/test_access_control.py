"""Users and policies of a running broker."""

import logging
from pathlib import Path
from typing import Any

import pytest

from roquet.access.gaps import ALL, AccessGap
from roquet.broker.access.access_control import AccessControl, access_rules
from roquet.broker.access.access_file import AccessFile
from roquet.broker.settings.config import BrokerConfig
from roquet.model.access import (
    AccessDecision,
    AccessTables,
    Acl,
    Action,
    Match,
    PolicyEntry,
    ResourcePattern,
    ResourceType,
    User,
    UserStatus,
    UserType,
)
from roquet.model.errors import ConfigError, StoreError
from roquet.store.filesystem.files import RealFiles
from roquet.wire.codes import RequestCode
from roquet.wire.signing import Credentials

ROOT = Credentials(access_key="root", secret_key="first")
INNER = Credentials(access_key="inner", secret_key="inside")
SECURED: dict[str, Any] = {
    "authentication_enabled": True, "initial_user": ROOT, "inner_credentials": INNER,
}  # fmt: skip

BOB = User(name="bob", password="p")


def with_bob(tables: AccessTables) -> AccessTables:
    return AccessTables(users={**tables.users, "bob": BOB}, acls=tables.acls)


@pytest.fixture
def file(tmp_path: Path) -> AccessFile:
    return AccessFile(RealFiles(), tmp_path / "access.json")


def test_the_users_of_the_settings_are_made_once(file: AccessFile) -> None:
    control = AccessControl(BrokerConfig(**SECURED), file)
    assert {name: user.is_super for name, user in control.tables.users.items()} == {
        "root": True,
        "inner": True,
    }
    later = Credentials(access_key="root", secret_key="second")
    again = AccessControl(BrokerConfig(**{**SECURED, "initial_user": later}), file)
    assert again.tables.users["root"].password == "first"


def test_a_broker_without_access_control_reads_no_file(file: AccessFile) -> None:
    file.path.write_text("nonsense")
    control = AccessControl(BrokerConfig(), file)
    assert not control.is_enabled
    assert control.tables == AccessTables()


def test_a_broker_that_nobody_could_use_does_not_start(file: AccessFile) -> None:
    with pytest.raises(ConfigError, match="name the first one in initAuthenticationUser"):
        AccessControl(BrokerConfig(authentication_enabled=True), file)
    file.path.write_text("nonsense")
    with pytest.raises(StoreError, match="mend it"):
        AccessControl(BrokerConfig(**SECURED), file)


async def test_a_change_is_saved_before_it_is_in_force(file: AccessFile) -> None:
    control = AccessControl(BrokerConfig(**SECURED), file)
    await control.change(with_bob)
    assert control.tables.users["bob"] == BOB
    assert AccessFile(RealFiles(), file.path).read() == control.tables


async def test_a_change_that_is_not_saved_is_none(tmp_path: Path) -> None:
    folder = tmp_path / "config"
    file = AccessFile(RealFiles(), folder / "access.json")
    control = AccessControl(BrokerConfig(**SECURED), file)
    before = control.tables
    file.path.unlink()
    folder.rmdir()
    folder.write_text("in the way")
    with pytest.raises(StoreError):
        await control.change(with_bob)
    assert control.tables is before


async def test_in_memory_changes_need_no_file() -> None:
    control = AccessControl(BrokerConfig(**SECURED), None)
    await control.change(with_bob)
    await control.reload(0)
    assert "bob" in control.tables.users


async def test_an_operators_edit_of_the_file_is_taken_over(file: AccessFile) -> None:
    control = AccessControl(BrokerConfig(**SECURED), file)
    AccessFile(RealFiles(), file.path).write(with_bob(control.tables))
    await control.reload(0)
    assert "bob" in control.tables.users


async def test_a_change_starts_from_an_operators_edit(file: AccessFile) -> None:
    control = AccessControl(BrokerConfig(**SECURED), file)
    eve = User(name="eve", password="p")
    edited = AccessTables(users={**control.tables.users, "eve": eve})
    AccessFile(RealFiles(), file.path).write(edited)
    await control.change(with_bob)
    assert control.tables.users.keys() == {"root", "inner", "bob", "eve"}


async def test_a_broken_edit_changes_nothing_and_is_logged_once(
    file: AccessFile, caplog: pytest.LogCaptureFixture
) -> None:
    control = AccessControl(BrokerConfig(**SECURED), file)
    before = control.tables
    file.path.write_text("nonsense")
    with caplog.at_level(logging.WARNING):
        for _ in range(3):
            await control.reload(0)
    assert control.tables is before
    assert len(caplog.messages) == 1
    with pytest.raises(StoreError, match="mend it"):
        await control.change(with_bob)
    assert file.path.read_text() == "nonsense"


def test_the_rules_are_those_of_the_settings() -> None:
    rules = access_rules(
        BrokerConfig(
            **SECURED,
            authorization_enabled=True,
            cluster_name="c9",
            authentication_whitelist=(26,),
            authorization_whitelist=(28,),
            access_compatibility=(AccessGap.CODES,),
        )
    )
    assert (rules.cluster, rules.checks_policies) == ("c9", True)
    assert rules.gaps == (AccessGap.CODES,)
    assert (rules.unsigned_codes, rules.open_codes) == (frozenset({26}), frozenset({28}))


def test_a_notice_of_a_new_role_needs_no_signature_where_a_controller_gives_roles() -> None:
    code = int(RequestCode.NOTIFY_BROKER_ROLE_CHANGED)
    controlled = BrokerConfig(**SECURED, controller_mode=True, controllers=("127.0.0.1:1",))
    assert access_rules(controlled).unsigned_codes == {code}
    assert access_rules(BrokerConfig(**SECURED)).unsigned_codes == set()


ALLOWED = PolicyEntry(
    resource=ResourcePattern(ResourceType.TOPIC, Match.LITERAL, "orders"),
    actions=(Action.PUB,),
    decision=AccessDecision.ALLOW,
    sources=("10.0.0.0/8",),
)


async def test_a_user_may_be_shown_what_it_may_send() -> None:
    settings = {**SECURED, "authorization_enabled": True}
    control = AccessControl(BrokerConfig(**settings), None)
    off = User(name="off", password="p", status=UserStatus.DISABLE, user_type=UserType.SUPER)
    acl = Acl(custom=(ALLOWED,))
    tables = control.tables
    users = {**tables.users, "bob": BOB, "off": off}
    await control.change(lambda _: AccessTables(users=users, acls={"bob": acl}))
    for user, topic, ip, may in (
        ("bob", "orders", "10.0.0.1", True),
        ("bob", "orders", "192.0.2.1", False),
        ("bob", "other", "10.0.0.1", False),
        ("root", "other", "192.0.2.1", True),
        ("off", "orders", "10.0.0.1", False),
        ("", "orders", "10.0.0.1", False),
    ):
        assert control.may_send(user, topic, ip) is may, (user, topic, ip)
    assert control.may_consume("root", "billing", "192.0.2.1")
    assert not control.may_consume("bob", "billing", "10.0.0.1"), "no policy names the group"
    assert not control.may_consume("", "billing", "10.0.0.1")
    assert control.may_name_replicas("root")
    assert not control.may_name_replicas("bob")
    assert not control.may_name_replicas("")


def test_every_user_may_be_shown_everything_where_every_user_may_send() -> None:
    settings = {**SECURED, "authorization_enabled": True, "authorization_whitelist": (310,)}
    control = AccessControl(BrokerConfig(**settings), None)
    assert control.may_send("root", "orders", "10.0.0.1")
    assert not control.may_send("", "orders", "10.0.0.1"), "nobody is no user"


@pytest.mark.parametrize(
    "settings",
    [{}, SECURED, {**SECURED, "authorization_enabled": True, "access_compatibility": ALL}],
)
def test_everybody_is_shown_everything_where_no_policies_count(settings: dict[str, Any]) -> None:
    control = AccessControl(BrokerConfig(**settings), None)
    assert control.may_send("", "orders", "10.0.0.1")
    assert control.may_name_replicas("")


def test_everybody_consumes_where_no_policies_count() -> None:
    assert AccessControl(BrokerConfig(), None).may_consume("", "billing", "10.0.0.1")


async def test_an_edit_that_would_lock_everybody_out_changes_nothing(
    file: AccessFile, caplog: pytest.LogCaptureFixture
) -> None:
    control = AccessControl(BrokerConfig(**SECURED), file)
    before = control.tables
    file.path.write_text('{"acls":[],"users":[]}')
    with caplog.at_level(logging.WARNING):
        await control.reload(0)
    assert control.tables is before
    assert "has no user in it: nobody could do anything; mend it" in caplog.text


@pytest.mark.parametrize("settings", [SECURED, {"inner_credentials": INNER}])
def test_settings_with_passwords_that_others_can_read_are_warned_of(
    tmp_path: Path, caplog: pytest.LogCaptureFixture, settings: dict[str, Any]
) -> None:
    path = tmp_path / "secure.conf"
    path.write_text("")
    for mode, count in ((0o600, 0), (0o644, 1)):
        path.chmod(mode)
        AccessControl(BrokerConfig(**settings, source=path), None)
        assert caplog.text.count("secure.conf holds passwords") == count
    AccessControl(BrokerConfig(source=path), None)
    assert caplog.text.count("secure.conf holds passwords") == 1, "there are none in it"
