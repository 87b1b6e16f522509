"""Arguments: the help says which name is meant, and the shell completes it."""

from typing import get_args

import pytest

from roquet.cli.terminal import completion
from roquet.cli.terminal.arguments import BrokerArgument, GroupArgument, TopicArgument


@pytest.mark.parametrize(
    ("argument", "help_text", "complete"),
    [
        (TopicArgument, "The topic's name.", completion.topics),
        (GroupArgument, "The consumer group's name.", completion.groups),
        (
            BrokerArgument,
            "The broker's name, for its master, or a replica's name and id, as broker-a#1.",
            completion.brokers,
        ),
    ],
)
def test_a_name_is_completed(argument: object, help_text: str, complete: object) -> None:
    kind, info = get_args(argument)
    assert (kind, info.help, info.autocompletion) == (str, help_text, complete)
