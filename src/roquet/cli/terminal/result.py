"""Result: what a command prints, as text or as JSON, and how it ends."""

import sys
from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING, Any

import msgspec

from roquet.cli.terminal import output
from roquet.cli.terminal.exit_codes import FAILED
from roquet.model.errors import RoquetError

if TYPE_CHECKING:
    from rich.console import RenderableType


class Result(msgspec.Struct, frozen=True, kw_only=True):
    """Output of a command, and its exit code."""

    json: Iterable[Any]
    """Values of which --json prints one a line."""
    text: "Iterable[RenderableType]" = ()
    """Lines and tables to print without --json; a generator makes them only then."""
    hints: Iterable[str] = ()
    """Lines on stderr beside the text."""
    notes: Iterable[str] = ()
    """Lines on stderr, also with --json."""
    faults: Sequence[str] = ()
    """Lines on stderr, also with --json; with any of them the exit code is 1."""
    is_failed: bool = False
    """Whether the exit code is 1 even without faults."""
    error: RoquetError | None = None
    """Raised after everything was printed."""

    def show(self, *, as_json: bool) -> None:
        """Print the result; exits with code 1 if the command failed."""
        if as_json:
            output.echo_json(self.json)
        else:
            show_text(self.text)
            output.echo_errors(self.hints)
        output.echo_errors(self.notes)
        output.echo_errors(self.faults)
        if self.error is not None:
            raise self.error
        if self.faults or self.is_failed:
            sys.exit(FAILED)


def show_text(parts: "Iterable[RenderableType]") -> None:
    """Print lines as they are, and everything else by rich."""
    for part in parts:
        if isinstance(part, str):
            output.echo(part)
        else:
            output.console().print(part)
