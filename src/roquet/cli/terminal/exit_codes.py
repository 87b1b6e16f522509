"""Exit codes: how every command ends; the table in docs/howto/operating.md says what each means."""

from typing import Final

FAILED: Final = 1
"""It could not be done now, nothing was found, something is amiss, or the answer was no."""

WRONG_USE: Final = 2
"""It cannot work as it was given: a word, an option, a setting, or a name that no broker knows. As
typer itself ends when an option is wrong."""

INTERRUPTED: Final = 130
"""What shells call the end by Ctrl-C of a command that had not done its work; one that runs until
Ctrl-C ends with 0."""
