import logging
import socket
from collections.abc import Iterator

import pytest
import typer
from typer.testing import CliRunner

from roquet.cli.main import app
from roquet.cli.terminal import completion
from roquet.testing.cluster import BlockingCluster


@pytest.fixture(scope="module")
def namesrv() -> Iterator[str]:
    with BlockingCluster(default_queue_count=1) as cluster:
        for words in (("topic", "create", "orders"), ("group", "create", "billing")):
            CliRunner().invoke(app, [*words, "-n", cluster.namesrv_addr])
        yield cluster.namesrv_addr


def context(namesrv: str) -> typer.Context:
    context = typer.Context(typer.main.get_command(app))
    context.params["namesrv"] = namesrv
    return context


def completed(namesrv: str, words: str) -> list[str]:
    """Completions that bash gets at the end of a line."""
    environment = {
        "_ROQUET_COMPLETE": "complete_bash",
        "COMP_WORDS": words,
        "COMP_CWORD": str(len(words.split(" ")) - 1),
        "NAMESRV_ADDR": namesrv,
    }
    return CliRunner(env=environment).invoke(app, [], prog_name="roquet").stdout.split()


def test_names_with_the_typed_prefix_are_completed(namesrv: str) -> None:
    ctx = context(namesrv)
    assert completion.topics(ctx, "ord") == ["orders"]
    assert completion.topics(ctx, "x") == []
    assert completion.groups(ctx, "") == ["billing"]
    assert completion.brokers(ctx, "broker") == ["broker-a"]


@pytest.mark.parametrize(
    ("words", "names"),
    [
        ("roquet topic show ", "orders"),
        ("roquet consume or", "orders"),
        ("roquet group show b", "billing"),
        ("roquet group reset billing --topic o", "orders"),
        ("roquet dlq show b", "billing"),
        ("roquet cluster show ", "broker-a"),
        ("roquet broker set ", "broker-a"),
    ],
)
def test_the_shell_gets_names(namesrv: str, words: str, names: str) -> None:
    assert completed(namesrv, words) == [names]


def test_names_come_from_the_name_servers_of_the_typed_option(namesrv: str) -> None:
    assert completed("127.0.0.1:1", f"roquet topic show -n {namesrv} o") == ["orders"]


@pytest.mark.parametrize("address", ["127.0.0.1:1", "nonsense"])
def test_nothing_is_completed_without_an_answer(
    address: str, capfd: pytest.CaptureFixture[str]
) -> None:
    before = logging.root.manager.disable
    assert completion.topics(context(address), "") == []
    assert capfd.readouterr() == ("", "")
    assert logging.root.manager.disable == before


def test_a_silent_name_server_is_not_waited_for(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(completion, "WAIT_S", 0.05)
    with socket.create_server(("127.0.0.1", 0)) as silent:
        assert completion.groups(context(f"127.0.0.1:{silent.getsockname()[1]}"), "") == []
