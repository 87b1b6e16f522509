"""MessageLog: the part of the broker that stores and reads messages.

ingest ──▶ store ──▶ flush      long polls and pops wait in `arrivals`
"""

import msgspec

from roquet.broker.counts import BrokerCounts
from roquet.broker.filtering.filter_cache import FilterCache
from roquet.broker.ingest.append import Ingest
from roquet.broker.log.flush import Flush
from roquet.broker.log.long_polling import LongPolling
from roquet.store.store import Store
from roquet.wire.records.host_bytes import decode_host


class MessageLog(msgspec.Struct, frozen=True, kw_only=True):
    """The store, the way into it, and those who wait for what is stored."""

    store: Store
    ingest: Ingest
    flush: Flush
    arrivals: LongPolling
    filters: FilterCache
    """SQL92 expressions of subscriptions, compiled."""
    memory: int
    """Bytes of memory of the machine: the page cache holds a share of it."""

    @property
    def counts(self) -> BrokerCounts:
        """Counts for metrics."""
        return self.ingest.counts

    @property
    def address(self) -> str:
        """The address that is stored with messages and told to clients: ip:port."""
        return decode_host(self.ingest.store_host)
