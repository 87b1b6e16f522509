"""SQL92 filter expressions: tokens, syntax tree, three-valued evaluation.

    a > 5 AND region IN ('eu', 'us') OR b IS NULL

Properties are texts. Compared with a whole number they are parsed as whole numbers, compared with a
decimal number as decimal numbers; a text that cannot be parsed so is an error, and the message does
not match.
"""

from collections.abc import Callable, Mapping
from typing import Final

from roquet.rules.sql92.conditions import Conditions, conditions_of
from roquet.rules.sql92.evaluate import (
    Predicate,
    PropertyGetter,
    PropertyLookup,
    Source,
    compile_predicate,
)
from roquet.rules.sql92.number_parsing import NotComparable
from roquet.rules.sql92.parse import DEPTH_MAX, TERMS_MAX, parse
from roquet.rules.sql92.syntax_tree import Node, term_count
from roquet.rules.sql92.tokens import SIZE_MAX, ExpressionError

__all__ = [
    "DEPTH_MAX",
    "SIZE_MAX",
    "TERMS_MAX",
    "Conditions",
    "ExpressionError",
    "Node",
    "NotComparable",
    "Predicate",
    "PropertyGetter",
    "PropertyLookup",
    "PropertyMap",
    "conditions_of",
    "matcher",
    "of_mapping",
    "parse",
    "term_count",
]

PropertyMap = Mapping[str, str]


def of_mapping(name: str) -> PropertyGetter[PropertyMap]:
    """Getter of a property in a mapping."""
    return lambda properties: properties.get(name)


_: Final[PropertyLookup[PropertyMap]] = of_mapping


def matcher(node: Node, look: PropertyLookup[Source]) -> Callable[[Source], bool]:
    """Whether a message matches: not if that is unknown or an error. Never raises."""
    test = compile_predicate(node, look)

    def matches(source: Source) -> bool:
        try:
            return test(source) is True
        except NotComparable:
            return False

    return matches
