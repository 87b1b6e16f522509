"""No two open consumers of this process share client id and group."""

import pytest

from roquet.client.connection import open_consumers
from roquet.model.errors import UsageError


class FakeConsumer:
    def __init__(self, client_id: str = "me", server: str = "n:1") -> None:
        self.group = "members"
        self.client_id = client_id
        self.name_servers = [server]
        self.is_open = True


def test_a_name_is_taken_while_its_consumer_lives() -> None:
    first = FakeConsumer()
    open_consumers.register(first)
    open_consumers.register(first)
    with pytest.raises(UsageError, match="group members has a consumer named me"):
        open_consumers.register(FakeConsumer())
    first.is_open = False
    second = FakeConsumer()
    open_consumers.register(second)
    open_consumers.unregister(first)  # another consumer has its name
    with pytest.raises(UsageError, match="named me"):
        open_consumers.register(FakeConsumer())
    open_consumers.unregister(second)
    open_consumers.register(FakeConsumer())


def test_another_name_or_another_cluster_is_another_member() -> None:
    members = [FakeConsumer("x"), FakeConsumer("y"), FakeConsumer("x", "other:1")]
    for member in members:
        open_consumers.register(member)
    for member in members:
        with pytest.raises(UsageError, match=f"named {member.client_id}"):
            open_consumers.register(FakeConsumer(member.client_id, *member.name_servers))


def test_a_consumer_that_is_garbage_collected_frees_its_name() -> None:
    open_consumers.register(FakeConsumer("gone"))
    successor = FakeConsumer("gone")
    open_consumers.register(successor)
    with pytest.raises(UsageError, match="named gone"):
        open_consumers.register(FakeConsumer("gone"))
