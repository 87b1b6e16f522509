"""PrintableConsole: rich's console, which prints strings as they are and obeys nothing in them."""

from typing import Any

from rich.console import Console
from rich.progress import Task, TextColumn
from rich.text import Text

from roquet.model.printable_text import printable


class PrintableConsole(Console):
    """Tables and lines with strangers' text in them: no markup, no emoji codes, no escapes.

    Rich makes a `Text` of every string by `render_str`: of cells, of titles, of what is printed.
    """

    def __init__(self, **settings: Any) -> None:
        super().__init__(highlight=False, markup=False, emoji=False, **settings)

    def render_str(self, text: str, **settings: Any) -> Text:
        """A string as text."""
        return super().render_str(printable(text), **settings)


class PrintableColumn(TextColumn):
    """A column of a progress bar, as `{task.description}`; nothing in it is markup."""

    def __init__(self, text_format: str) -> None:
        super().__init__(text_format, markup=False)

    def render(self, task: Task) -> Text:
        """The column of one task."""
        return Text(printable(super().render(task).plain))
