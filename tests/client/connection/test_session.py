"""The life of a client's session."""

import gc
import sys
from typing import Any

import pytest
from tests.client.conftest import config_of

from roquet.client.config import ClientConfig
from roquet.client.connection.session import Session
from roquet.model.errors import ConfigError, UsageError
from roquet.model.subscription import HeartbeatData
from roquet.testing.clock import in_virtual_time


def data() -> HeartbeatData:
    return HeartbeatData(client_id="me")


async def test_a_client_is_used_between_its_start_and_its_close() -> None:
    session = Session("127.0.0.1:1", config_of(ClientConfig))
    with pytest.raises(UsageError, match="not started"):
        session.check()
    session.start(data)
    session.check()
    with pytest.raises(UsageError, match="started once"):
        session.start(data)
    await session.close()
    with pytest.raises(UsageError, match="is closed"):
        session.check()
    with pytest.raises(UsageError, match="started once"):
        session.start(data)


async def test_a_client_of_the_parent_is_refused_in_a_fork() -> None:
    session = Session("127.0.0.1:1", config_of(ClientConfig))
    session.start(data)
    session.identity.pid += 1
    with pytest.raises(UsageError, match="before a fork"):
        session.check()
    await session.close()


def test_the_environment_names_the_name_server(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("NAMESRV_ADDR", "10.0.0.1:9876")
    assert Session(None, ClientConfig()).addresses == ("10.0.0.1:9876",)


def test_spans_are_made_where_the_settings_ask_for_them() -> None:
    session = Session("127.0.0.1:1", ClientConfig())
    session.open_spans()
    assert session.spans is None
    traced = Session("127.0.0.1:1", ClientConfig(tracing=True))
    traced.open_spans("g")
    assert traced.spans is not None


def test_tracing_needs_a_provider_and_opentelemetry(monkeypatch: pytest.MonkeyPatch) -> None:
    wrong: Any = "yes"
    with pytest.raises(ConfigError, match=r"tracing: 'yes' is not a bool or a TracerProvider"):
        Session("127.0.0.1:1", ClientConfig(tracing=wrong)).open_spans()
    monkeypatch.delitem(sys.modules, "roquet.client.spans.client_spans", raising=False)
    monkeypatch.setitem(sys.modules, "opentelemetry.context", None)
    with pytest.raises(ConfigError, match=r"pip install 'roquet\[tracing\]'"):
        Session("127.0.0.1:1", ClientConfig(tracing=True)).open_spans()


def test_a_client_that_nobody_closed_is_warned_of_once_it_is_forgotten() -> None:
    async def forget() -> None:
        Session("127.0.0.1:1", config_of(ClientConfig)).start(data)

    def forgotten() -> None:
        in_virtual_time(forget)()
        gc.collect()

    with pytest.warns(ResourceWarning, match="was not closed: use `async with`, or close it"):
        forgotten()


async def test_a_closed_client_and_one_that_never_started_are_forgotten_silently(
    recwarn: pytest.WarningsRecorder,
) -> None:
    session = Session("127.0.0.1:1", config_of(ClientConfig))
    session.start(data)
    await session.close()
    del session
    Session("127.0.0.1:1", ClientConfig())
    with pytest.raises(ConfigError):
        Session("", ClientConfig())
    gc.collect()
    assert [str(warning.message) for warning in recwarn] == []
