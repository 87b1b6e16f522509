import asyncio
from types import ModuleType
from typing import Any

import msgspec
import pytest

from roquet.model.topic import TopicConfig
from roquet.namesrv import state as state_module
from roquet.namesrv.handlers import HANDLERS
from roquet.namesrv.state import NameServerState, RegistrationAnswers
from roquet.rules import routing
from roquet.rules.routing import BrokerRegistration, BrokerRegistrations
from roquet.wire.call import Call
from roquet.wire.calls import route
from roquet.wire.calls.admin import namesrv
from roquet.wire.calls.bodies import TopicList
from roquet.wire.fastjson import codec


def of(module: ModuleType) -> set[Any]:
    found = {v for v in vars(module).values() if isinstance(v, type) and issubclass(v, Call)}
    return found - {Call}


def test_every_conversation_of_the_name_server_is_served() -> None:
    assert of(route) | of(namesrv) == set(HANDLERS)


def test_settings_may_change_while_it_runs(state: NameServerState) -> None:
    state.config = msgspec.structs.replace(state.config, order_messages=True)
    assert state.config.order_messages


def registered(count: int) -> BrokerRegistrations:
    names = [f"t{number:05}" for number in range(count)]
    broker = BrokerRegistration(
        cluster="c", broker_name="a", broker_id=0, address="h:1",
        topics={name: TopicConfig(topic_name=name) for name in names},
    )  # fmt: skip
    return {broker.broker_key: broker}


def names_of(reply: Any) -> list[str]:
    return codec.loads(reply.body, TopicList).topic_list


def listed(known: BrokerRegistrations) -> TopicList:
    return TopicList(topic_list=routing.topics(known))


async def test_a_long_list_is_made_once_while_nothing_changes() -> None:
    known, lists, made = registered(9_000), RegistrationAnswers(), list[int]()

    def names(found: BrokerRegistrations) -> TopicList:
        made.append(1)
        return listed(found)

    def ask() -> Any:
        return lists.reply(lambda: known, "all", names)

    replies = await asyncio.gather(*(ask() for _ in range(5)))
    assert [names_of(reply) for reply in replies] == [[f"t{n:05}" for n in range(9_000)]] * 5
    assert len(made) == 1
    known = registered(9_001)
    assert len(names_of(await ask())) == 9_001
    assert len(made) == 2


async def test_a_short_list_is_answered_at_once() -> None:
    reply = RegistrationAnswers().reply(lambda: registered(3), "all", listed)
    assert names_of(reply) == ["t00000", "t00001", "t00002"]


async def test_few_lists_are_kept(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(state_module, "ROWS_MAX", 1)
    known, lists = registered(5), RegistrationAnswers()
    for number in range(30):
        later: Any = lists.reply(lambda: known, number, listed)
        assert len(names_of(await later)) == 5


async def test_others_have_their_turn_while_a_long_list_is_made() -> None:
    known, lists, turns = registered(60_000), RegistrationAnswers(), 0

    async def other() -> None:
        nonlocal turns
        while True:
            turns += 1
            await asyncio.sleep(0.001)

    task = asyncio.create_task(other())
    later: Any = lists.reply(lambda: known, "all", listed)
    await later
    task.cancel()
    assert turns >= 3
