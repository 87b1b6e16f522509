"""Work of roquet acl on brokers."""

import pytest
from tests.cli.admin.acl.conftest import Roquet

from roquet.admin import access
from roquet.cli.admin.acl.on_brokers import AccessChange
from roquet.model.errors import UsageError


def test_only_the_named_brokers_are_asked(roquet: Roquet) -> None:
    roquet("acl", "user", "create", "half", "--generate", "--broker", "broker-b")
    assert roquet("acl", "user", "list", "half").output == "no user\n"
    assert "half" in roquet("acl", "user", "list", "half", "--broker", "broker-b").output
    with pytest.raises(UsageError, match="did you mean 'broker-b'"):
        roquet("acl", "user", "list", "--broker", "broker-bb")


def test_a_printed_change_has_no_password() -> None:
    call = access.user_call("bob", create=True, password="hush-hush", user_type=None, status=None)
    assert "hush" not in repr(AccessChange(call=call, done="bob: created", secret="hush-hush"))
