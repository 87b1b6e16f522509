"""PrintableConsole: a rich console that prints untrusted strings escaped and without markup."""

from typing import Any

from rich.console import Console
from rich.progress import (
    Task,
    TextColumn,
)
from rich.text import Text

from roquet.model.printable_text import printable


class PrintableConsole(Console):
    """A console for tables and lines with untrusted text: no markup, no emoji codes, no escapes.

    Rich calls `render_str` for every string: cells, titles and printed lines.
    """

    def __init__(self, **settings: Any) -> None:
        super().__init__(highlight=False, markup=False, emoji=False, **settings)

    def render_str(self, text: str, **settings: Any) -> Text:
        """Render a string as escaped text."""
        return super().render_str(printable(text), **settings)


class PrintableColumn(TextColumn):
    """A progress column such as `{task.description}`, escaped and without markup."""

    def __init__(self, text_format: str) -> None:
        super().__init__(text_format, markup=False)

    def render(self, task: Task) -> Text:
        """Render the column of one task."""
        return Text(printable(super().render(task).plain))
