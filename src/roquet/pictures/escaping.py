"""Escaping: text as it may stand in HTML and SVG, between tags and in quoted attributes."""

from html import escape

from roquet.model.printable_text import printable


def escape_text(value: object) -> str:
    """A value's text: tags, quotes, control and formatting characters are shown, not obeyed."""
    return escape(printable(str(value)))
