"""The consumers of this process."""

import pytest

from roquet.client.connection import open_consumers
from roquet.model.errors import UsageError


class Somebody:
    def __init__(self, client_id: str = "me", server: str = "n:1") -> None:
        self.group = "members"
        self.client_id = client_id
        self.name_servers = [server]
        self.is_open = True


def test_a_name_is_taken_while_its_consumer_lives() -> None:
    first = Somebody()
    open_consumers.register(first)
    open_consumers.register(first)
    with pytest.raises(UsageError, match="group members has a consumer named me"):
        open_consumers.register(Somebody())
    first.is_open = False
    second = Somebody()
    open_consumers.register(second)
    open_consumers.unregister(first)  # has no say in it any more
    with pytest.raises(UsageError, match="named me"):
        open_consumers.register(Somebody())
    open_consumers.unregister(second)
    open_consumers.register(Somebody())


def test_another_name_or_another_cluster_is_another_member() -> None:
    kept = [Somebody("x"), Somebody("y"), Somebody("x", "other:1")]
    for one in kept:
        open_consumers.register(one)


def test_a_consumer_that_is_forgotten_leaves_its_name() -> None:
    open_consumers.register(Somebody("gone"))
    open_consumers.register(Somebody("gone"))
