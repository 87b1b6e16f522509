"""The filter expression language: tokens, syntax tree, three-valued evaluation.

    a > 5 AND region IN ('eu', 'us') OR b IS NULL

Properties are texts. Compared with a whole number they are read as whole numbers, compared with a
decimal one as decimal numbers; what cannot be read so is an error, and the message does not match.
"""

from collections.abc import Callable, Mapping
from typing import Final

from roquet.rules.sql92.evaluate import Get, Look, Source, Test, compiled
from roquet.rules.sql92.hints import Either, Every, Lack, Shown, Sign, Signs, shown, ways
from roquet.rules.sql92.parse import DEPTH_MAX, TERMS_MAX, parse
from roquet.rules.sql92.reading import Unsuitable
from roquet.rules.sql92.tokens import SIZE_MAX, ExpressionError
from roquet.rules.sql92.tree import Node, term_count, text

__all__ = [
    "DEPTH_MAX",
    "SIZE_MAX",
    "TERMS_MAX",
    "Either",
    "Every",
    "ExpressionError",
    "Get",
    "Lack",
    "Look",
    "Node",
    "Properties",
    "Shown",
    "Sign",
    "Signs",
    "Test",
    "Unsuitable",
    "matcher",
    "of_mapping",
    "parse",
    "shown",
    "term_count",
    "text",
    "ways",
]

Properties = Mapping[str, str]


def of_mapping(name: str) -> Get[Properties]:
    """Finds a property in a mapping."""
    return lambda properties: properties.get(name)


_: Final[Look[Properties]] = of_mapping


def matcher(node: Node, look: Look[Source]) -> Callable[[Source], bool]:
    """Whether a message matches: not, where that is unknown or cannot be said. Never raises."""
    test = compiled(node, look)

    def matches(source: Source) -> bool:
        try:
            return test(source) is True
        except Unsuitable:
            return False

    return matches
