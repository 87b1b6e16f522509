"""Needs of the Admin service, which are those of Apache's proxy."""

from roquet.model.access import Action
from roquet.proxy.admin.needs import NEEDS
from roquet.proxy.proxy import Proxy


async def test_each_method_needs_something(proxy: Proxy) -> None:
    server = proxy.admin()
    assert NEEDS.keys() == server.methods.keys()
    await server.client.__aexit__(None, None, None)


def test_what_only_reads_needs_no_right_to_change() -> None:
    reading = {name for name, need in NEEDS.items() if need.actions[0] in (Action.GET, Action.LIST)}
    assert NEEDS.keys() - reading == {
        "ChangeLogLevel", "PrintThreadStackTrace", "VerifyMessage", "ResetGroupOffset",
        "DeleteSubscription", "AdminSendMessage",
    }  # fmt: skip
    assert str(NEEDS["ListSubscription"].resource) == "Cluster:proxy.admin.client"
