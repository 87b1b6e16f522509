"""Arguments: names of topics, groups and brokers on a command line, with shell completion."""

from typing import Annotated

import typer

from roquet.cli.terminal import completion

TopicArgument = Annotated[
    str, typer.Argument(help="The topic's name.", autocompletion=completion.topics)
]
GroupArgument = Annotated[
    str, typer.Argument(help="The consumer group's name.", autocompletion=completion.groups)
]
BrokerArgument = Annotated[
    str,
    typer.Argument(
        help="The broker's name, for its master, or a replica's name and id, as broker-a#1.",
        autocompletion=completion.brokers,
    ),
]
