"""Arguments: the help says which name is meant, and the shell completes it."""

import logging
import socket
from collections.abc import Iterator
from typing import get_args

import pytest
import typer
from tests.cli.running import invoke
from typer.testing import CliRunner

from roquet.cli.main import app
from roquet.cli.terminal import arguments
from roquet.cli.terminal.arguments import (
    BrokerArgument,
    GroupArgument,
    TopicArgument,
    parse_changes,
)
from roquet.model.errors import UsageError
from roquet.testing.cluster import BlockingCluster


@pytest.mark.parametrize(
    ("argument", "help_text", "complete"),
    [
        (TopicArgument, "The topic's name.", arguments.complete_topics),
        (GroupArgument, "The consumer group's name.", arguments.complete_groups),
        (
            BrokerArgument,
            "The broker's name, for its master, or a replica's name and id, as broker-a#1.",
            arguments.complete_brokers,
        ),
    ],
)
def test_a_name_is_completed(argument: object, help_text: str, complete: object) -> None:
    kind, info = get_args(argument)
    assert (kind, info.help, info.autocompletion) == (str, help_text, complete)


def test_the_option_goes_before_the_environment_and_that_before_roquet_dev(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setenv("NAMESRV_ADDR", "env:1;more:2")
    assert arguments.namesrv_addresses("typed:3") == "typed:3"
    assert arguments.namesrv_addresses(None) == "env:1;more:2"
    monkeypatch.delenv("NAMESRV_ADDR")
    assert arguments.namesrv_addresses(None) == "127.0.0.1:9876"


def test_a_wrong_address_is_an_error_that_names_its_source(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("NAMESRV_ADDR", "nonsense")
    with pytest.raises(UsageError, match="NAMESRV_ADDR: 'nonsense' is not HOST:PORT"):
        arguments.namesrv_addresses(None)
    with pytest.raises(UsageError, match="--namesrv: 'x' is not HOST:PORT"):
        arguments.namesrv_addresses("x")


@pytest.fixture(scope="module")
def namesrv() -> Iterator[str]:
    with BlockingCluster(default_queue_count=1) as cluster:
        for words in (("topic", "create", "orders"), ("group", "create", "billing")):
            invoke(*words, "-n", cluster.namesrv_addr)
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
    assert arguments.complete_topics(ctx, "ord") == ["orders"]
    assert arguments.complete_topics(ctx, "x") == []
    assert arguments.complete_groups(ctx, "") == ["billing"]
    assert arguments.complete_brokers(ctx, "broker") == ["broker-a"]


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
    assert arguments.complete_topics(context(address), "") == []
    assert capfd.readouterr() == ("", "")
    assert logging.root.manager.disable == before


def test_a_silent_name_server_is_not_waited_for(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(arguments, "WAIT_S", 0.05)
    with socket.create_server(("127.0.0.1", 0)) as silent:
        assert arguments.complete_groups(context(f"127.0.0.1:{silent.getsockname()[1]}"), "") == []


def test_changes_are_keys_with_values_that_may_have_an_equals_sign_or_be_empty() -> None:
    assert parse_changes(["a=1", "quotas=x=y", "b="], {}) == {"a": "1", "quotas": "x=y", "b": ""}


@pytest.mark.parametrize("text", ["nonsense", "=1", ""])
def test_another_form_is_wrong_use(text: str) -> None:
    with pytest.raises(UsageError, match="KEY=VALUE is wanted"):
        parse_changes([text], {})


def test_one_setting_is_given_once_also_under_two_names() -> None:
    with pytest.raises(UsageError, match="foo=1 and foo=2 are one setting"):
        parse_changes(["foo=1", "foo=2"], {})
    with pytest.raises(UsageError, match="theirs=1 and ours=2 are one setting"):
        parse_changes(["theirs=1", "ours=2"], {"theirs": "ours"})
