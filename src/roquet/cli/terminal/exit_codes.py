"""Exit codes of all commands; docs/howto/operating.md has a table of their meanings."""

from typing import Final

FAILED: Final = 1
"""The command failed, found nothing, found a problem, or was answered with no."""

WRONG_USE: Final = 2
"""The command line is wrong: an argument, an option, a setting, or a name that no broker knows.
Typer uses this code, too."""

INTERRUPTED: Final = 130
"""Ctrl-C ended a command before its work was done, by the shells' convention (128 + SIGINT). A
command that runs until Ctrl-C ends with 0."""
