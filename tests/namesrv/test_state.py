from types import ModuleType
from typing import Any

import msgspec

from roquet.namesrv.handlers import HANDLERS
from roquet.namesrv.state import NameServerState
from roquet.wire.call import Call
from roquet.wire.calls import route
from roquet.wire.calls.admin import namesrv


def of(module: ModuleType) -> set[Any]:
    found = {v for v in vars(module).values() if isinstance(v, type) and issubclass(v, Call)}
    return found - {Call}


def test_every_conversation_of_the_name_server_is_served() -> None:
    assert of(route) | of(namesrv) == set(HANDLERS)


def test_settings_may_change_while_it_runs(state: NameServerState) -> None:
    state.config = msgspec.structs.replace(state.config, order_messages=True)
    assert state.config.order_messages
