"""Escaping: text made safe for HTML and SVG, between tags and in quoted attributes."""

from html import escape

from roquet.model.printable_text import printable


def escape_text(value: object) -> str:
    """A value's text with tags, quotes, control and formatting characters shown literally."""
    return escape(printable(str(value)))
