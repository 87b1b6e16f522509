"""FilterCache: SQL92 expressions of subscriptions, compiled once.

Each pull carries its expression, or a heartbeat has sent it before. Groups have one or few, so a
small cache of the last used ones is enough.
"""

import asyncio
from collections.abc import Iterable
from typing import Final, NoReturn

import msgspec

from roquet.broker.filtering.record_matcher import (
    RecordMatcher,
    decoded_finder,
    decoded_values,
    record_matcher,
)
from roquet.broker.refusals import system_error
from roquet.broker.settings.config import BrokerConfig
from roquet.log_records import logger
from roquet.model.errors import CallRefused
from roquet.model.subscription import SQL92, TAG, Subscription
from roquet.rules import sql92
from roquet.rules.bounded_cache import BoundedCache
from roquet.wire.codes import ResponseCode
from roquet.wire.records.partial_decode import property_finder

log = logger(__name__)

TAG_TYPES: Final = frozenset((None, "", TAG))
"""Expression types that mean tags."""

EXPRESSIONS_MAX: Final = 1_024
"""Cached expressions: a limit, so that peers cannot fill the memory with them."""

CACHE_SIZE_MAX: Final = 256 * 1024
"""Characters of all cached expressions; compiled they take up to a hundred times as many bytes."""


HEARTBEAT_SIZE_MAX: Final = 4_096
"""Characters of new expressions that one heartbeat compiles: a hundred take a millisecond."""


class CompiledFilter(msgspec.Struct, frozen=True, gc=False):
    """A compiled expression."""

    expression: str
    matching: RecordMatcher
    """The records of a block that match; each name is searched for in a record's properties."""
    matching_decoded: RecordMatcher
    """Records that match, as `matching` finds them; long properties are decoded once instead."""
    terms: int
    """Names and values in the expression: a measure of the cost of one message."""


class FilterCache:
    """Compiled expressions, the last used ones."""

    def __init__(self) -> None:
        self._known: BoundedCache[tuple[str, bool], CompiledFilter | sql92.ExpressionError] = (
            BoundedCache(EXPRESSIONS_MAX, CACHE_SIZE_MAX)
        )
        """By expression and whether it is parsed as genuine brokers do; weights are characters."""
        self.scan_lock = asyncio.Lock()
        """Held while one block is scanned, so that concurrent scans take turns."""

    def __len__(self) -> int:
        return len(self._known)

    def find(
        self, config: BrokerConfig, kind: str | None, expression: str | None
    ) -> CompiledFilter:
        """The filter of a request.

        CallRefused for an unknown type or an expression with an error.
        """
        if not config.property_filter:
            raise system_error(f"The broker does not support consumer to filter message by {kind}")
        if kind != SQL92:
            _unparsed(f"the kind of expression {kind!r} is unknown: {TAG} or {SQL92}")
        compiled = self._find(expression or "", genuine=config.sql_compatibility)
        if not isinstance(compiled, CompiledFilter):
            _unparsed(str(compiled))
        return compiled

    def of_subscription(self, config: BrokerConfig, subscription: Subscription) -> CompiledFilter:
        """The filter of a subscription that a heartbeat sent. Raises CallRefused."""
        try:
            return self.find(config, subscription.expression_type, subscription.sub_string)
        except CallRefused as error:
            if error.code != ResponseCode.SUBSCRIPTION_PARSE_FAILED:
                raise
            raise CallRefused(
                ResponseCode.FILTER_DATA_NOT_EXIST,
                "The broker's consumer filter data is not exist!Your expression may be wrong! "
                f"{error.remark}",
            ) from error

    def precompile(
        self,
        config: BrokerConfig,
        group: str,
        subscriptions: Iterable[Subscription],
        left: int = HEARTBEAT_SIZE_MAX,
    ) -> int:
        """Compile the expressions of a heartbeat; an expression with an error is logged once.

        New expressions of up to `left` characters in all are compiled, the others at their first
        use. Returns the characters left.
        """
        for subscription in subscriptions:
            kind, text = subscription.expression_type, subscription.sub_string
            if kind != SQL92 or not config.property_filter:
                continue
            if (text, config.sql_compatibility) not in self._known and len(text) <= left:
                left -= len(text)
                compiled = self._find(text, genuine=config.sql_compatibility)
                if not isinstance(compiled, CompiledFilter):
                    log.warning("group %s, topic %s: %s", group, subscription.topic, compiled)
        return left

    def _find(self, expression: str, *, genuine: bool) -> CompiledFilter | sql92.ExpressionError:
        key = expression, genuine
        compiled = self._known.get(key)
        if compiled is None:
            compiled = _compiled(expression, genuine=genuine)
            self._known.put(key, compiled, len(expression))
        return compiled


def _compiled(expression: str, *, genuine: bool) -> CompiledFilter | sql92.ExpressionError:
    try:
        node = sql92.parse(expression, compatible=genuine)
    except sql92.ExpressionError as error:
        return error
    matches = sql92.matcher(node, property_finder)
    test = sql92.matcher(node, decoded_finder)
    return CompiledFilter(
        expression,
        record_matcher(sql92.conditions_of(node), matches),
        record_matcher(None, lambda properties: test(decoded_values(properties))),
        sql92.term_count(node),
    )


def _unparsed(reason: str) -> NoReturn:
    remark = f"parse the consumer's subscription failed: {reason}"
    raise CallRefused(ResponseCode.SUBSCRIPTION_PARSE_FAILED, remark)
