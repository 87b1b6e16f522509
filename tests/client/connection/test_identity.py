"""Client ids and generated message ids."""

import os
import re
from random import Random

import pytest

from roquet.client.config import ClientConfig
from roquet.client.connection.identity import ClientIdentity, MessageIdGenerator
from roquet.model.errors import UsageError
from roquet.wire.records.message_id import month_start_ms, unique_key, unique_key_origin

OCTOBER = 1_760_000_000_000


def test_a_client_id_names_machine_process_and_instance() -> None:
    first, second = (ClientIdentity(ClientConfig(client_ip="10.0.0.1")) for _ in range(2))
    assert re.fullmatch(rf"10\.0\.0\.1@{os.getpid()}#\d+", first.client_id)
    assert first.client_id != second.client_id


def test_an_instance_may_be_chosen() -> None:
    config = ClientConfig(client_ip="10.0.0.1", instance="billing-1")
    assert ClientIdentity(config).client_id == "10.0.0.1@billing-1"


def test_message_ids_have_javas_format() -> None:
    keys = MessageIdGenerator("10.0.0.1", 77, 0xABCD)
    made = keys.make(OCTOBER)
    since = OCTOBER - month_start_ms(OCTOBER)
    assert made == unique_key(bytes((10, 0, 0, 1)), 77, 0xABCD, since, 1)
    assert unique_key_origin(made) == ("10.0.0.1", 77)


def test_message_ids_are_unique() -> None:
    keys = MessageIdGenerator("10.0.0.1", 77, Random(1).getrandbits(32))
    assert len({keys.make(OCTOBER) for _ in range(10_000)}) == 10_000


def test_ids_go_on_in_a_new_month_and_when_the_clock_is_set_back() -> None:
    keys = MessageIdGenerator("::1", 77, 1)
    month_ms = 31 * 86_400_000
    times = [OCTOBER, OCTOBER + month_ms, OCTOBER - month_ms]
    made = [keys.make(now_ms) for now_ms in times]
    assert [int(one[-12:-4], 16) for one in made] == [t - month_start_ms(t) for t in times]
    assert {len(one) for one in made} == {56}


def test_a_client_in_a_forked_child_is_refused() -> None:
    identity = ClientIdentity(ClientConfig(client_ip="10.0.0.1"))
    identity.check_process()
    identity.pid += 1
    with pytest.raises(UsageError, match="before a fork"):
        identity.check_process()
