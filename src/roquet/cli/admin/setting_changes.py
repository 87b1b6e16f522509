"""Changes of settings on a command line: KEY=VALUE, each setting once."""

from collections.abc import Mapping, Sequence
from typing import Annotated, Any

import typer

from roquet.model.errors import UsageError

ChangesArgument = Annotated[list[str], typer.Argument(metavar="KEY=VALUE", help="What to change.")]


def parse_changes(texts: Sequence[str], names: Mapping[str, str]) -> dict[str, str]:
    """Values by key, as they are given. `names` are our names of settings by other keys of theirs.

    Raises UsageError for a text of another form, and when one setting is given twice, also under
    two names.
    """
    changes: dict[str, str] = {}
    seen: dict[str, str] = {}
    for text in texts:
        key, equals, value = text.partition("=")
        if not key or not equals:
            raise UsageError(f"{text!r}: KEY=VALUE is wanted")
        name = names.get(key, key)
        if name in seen:
            raise UsageError(f"{seen[name]} and {text} are one setting: give it once")
        seen[name] = text
        changes[key] = value
    return changes


def change_line(server: str, row: Mapping[str, Any]) -> str:
    """A line that says which value a server has now, and which it gets."""
    return f"{server}: {row['key']} is {row['now'] or 'not set'}, then {row['then']}"
