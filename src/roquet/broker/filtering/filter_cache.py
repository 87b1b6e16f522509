"""Filters: SQL92 expressions of subscriptions, compiled once and remembered.

A subscription has its expression in each pull, or has told it in a heartbeat; groups have one or
few, so what was compiled last is what is asked for next.
"""

import asyncio
from collections.abc import Callable, Iterable
from typing import Final, NoReturn

import msgspec

from roquet.broker.filtering.prefilter import Prefilter, build_prefilter
from roquet.broker.settings.config import BrokerConfig
from roquet.log_records import logger
from roquet.model.errors import CallRefused
from roquet.model.subscription import SQL92, TAG, Subscription
from roquet.rules import sql92
from roquet.wire.codes import ResponseCode
from roquet.wire.records.partial_decode import property_finder

log = logger(__name__)

TAG_TYPES: Final = frozenset((None, "", TAG))
"""What clients call an expression of tags."""

EXPRESSIONS_MAX: Final = 1_024
"""Expressions that are remembered, so that peers cannot fill the memory with them."""

CACHE_SIZE_MAX: Final = 256 * 1024
"""Characters of all of them together; compiled they take up to a hundred times as much."""


HEARTBEAT_SIZE_MAX: Final = 4_096
"""Characters of the new expressions that are compiled when a heartbeat tells of them: a hundred
take a millisecond."""


class CompiledFilter(msgspec.Struct, frozen=True, gc=False):
    """An expression that is ready for use."""

    expression: str
    matches: Callable[[bytes], bool]
    """Whether a message with these properties, as they are stored, is wanted."""
    terms: int
    """Names and values in it: what a look at one message costs."""
    signs: Prefilter
    """What tells most messages that do not match from those that may."""


class FilterCache:
    """The expressions that are in use."""

    def __init__(self) -> None:
        self._known: dict[tuple[str, bool], CompiledFilter | sql92.ExpressionError] = {}
        """By expression and whether it is read as genuine brokers do; the last used stand last."""
        self._size = 0
        self.turn = asyncio.Lock()
        """Who looks through messages: one at a time, so that others have theirs in between."""

    def __len__(self) -> int:
        return len(self._known)

    def find(
        self, config: BrokerConfig, kind: str | None, expression: str | None
    ) -> CompiledFilter:
        """The filter that a request asks for. Raises CallRefused, which says what is wrong."""
        if not config.property_filter:
            _refuse(
                ResponseCode.SYSTEM_ERROR,
                f"The broker does not support consumer to filter message by {kind}",
            )
        if kind != SQL92:
            _unparsed(f"the kind of expression {kind!r} is unknown: {TAG} or {SQL92}")
        found = self._find(expression or "", genuine=config.sql_compatibility)
        if not isinstance(found, CompiledFilter):
            _unparsed(str(found))
        return found

    def told(self, config: BrokerConfig, subscription: Subscription) -> CompiledFilter:
        """The filter that a group's heartbeats told of. Raises CallRefused."""
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

    def hear(
        self,
        config: BrokerConfig,
        group: str,
        subscriptions: Iterable[Subscription],
        left: int = HEARTBEAT_SIZE_MAX,
    ) -> int:
        """Look at what a heartbeat says; an expression that is wrong is logged once.

        New expressions of up to `left` characters are looked at, the others when they are used;
        gives how many characters are left.
        """
        for subscription in subscriptions:
            kind, text = subscription.expression_type, subscription.sub_string
            if kind != SQL92 or not config.property_filter:
                continue
            if (text, config.sql_compatibility) not in self._known and len(text) <= left:
                left -= len(text)
                found = self._find(text, genuine=config.sql_compatibility)
                if not isinstance(found, CompiledFilter):
                    log.warning("group %s, topic %s: %s", group, subscription.topic, found)
        return left

    def _find(self, expression: str, *, genuine: bool) -> CompiledFilter | sql92.ExpressionError:
        key = expression, genuine
        found = self._known.pop(key, None)
        if found is None:
            found = _compiled(expression, genuine=genuine)
            self._size += len(expression)
        self._known[key] = found
        while len(self._known) > EXPRESSIONS_MAX or (
            self._size > CACHE_SIZE_MAX and len(self._known) > 1
        ):
            oldest = next(iter(self._known))
            del self._known[oldest]
            self._size -= len(oldest[0])
        return found


def _compiled(expression: str, *, genuine: bool) -> CompiledFilter | sql92.ExpressionError:
    try:
        node = sql92.parse(expression, compatible=genuine)
    except sql92.ExpressionError as error:
        return error
    matches = sql92.matcher(node, property_finder)
    return CompiledFilter(expression, matches, sql92.term_count(node), build_prefilter(node))


def _unparsed(reason: str) -> NoReturn:
    _refuse(
        ResponseCode.SUBSCRIPTION_PARSE_FAILED,
        f"parse the consumer's subscription failed: {reason}",
    )


def _refuse(code: ResponseCode, remark: str) -> NoReturn:
    raise CallRefused(code, remark)
