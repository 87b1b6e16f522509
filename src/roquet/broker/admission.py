"""Admission: the limit of waiting requests for each kind of request, from the settings."""

from collections.abc import Mapping
from typing import Any, Final

from roquet.broker.settings.config import BrokerConfig
from roquet.net.limits.request_limits import RequestLimit
from roquet.rules.admission import AdmissionLimits
from roquet.rules.quota import Quota, QuotaBuckets, QuotaDirection, QuotaExcess
from roquet.wire.call import Call
from roquet.wire.codes import RequestCode

SEND: Final = "send"
PULL: Final = "pull"
ACK: Final = "ack"
HEARTBEAT: Final = "heartbeat"
TRANSACTION: Final = "transaction"
QUERY: Final = "query"
ADMIN: Final = "admin"

KINDS: Final[Mapping[int, str]] = {
    RequestCode.SEND_MESSAGE: SEND,
    RequestCode.SEND_MESSAGE_V2: SEND,
    RequestCode.SEND_BATCH_MESSAGE: SEND,
    RequestCode.CONSUMER_SEND_MSG_BACK: SEND,
    RequestCode.SEND_REPLY_MESSAGE: SEND,
    RequestCode.SEND_REPLY_MESSAGE_V2: SEND,
    RequestCode.RECALL_MESSAGE: SEND,
    RequestCode.PULL_MESSAGE: PULL,
    RequestCode.LITE_PULL_MESSAGE: PULL,
    RequestCode.POP_MESSAGE: PULL,
    RequestCode.PEEK_MESSAGE: PULL,
    RequestCode.NOTIFICATION: PULL,
    RequestCode.POLLING_INFO: PULL,
    RequestCode.ACK_MESSAGE: ACK,
    RequestCode.BATCH_ACK_MESSAGE: ACK,
    RequestCode.CHANGE_MESSAGE_INVISIBLETIME: ACK,
    RequestCode.HEART_BEAT: HEARTBEAT,
    RequestCode.END_TRANSACTION: TRANSACTION,
    RequestCode.QUERY_MESSAGE: QUERY,
    RequestCode.VIEW_MESSAGE_BY_ID: QUERY,
}
"""Requests that share a limit, as they share a thread pool in the genuine broker; all others are
ADMIN."""


class Admission:
    """The request limits of one broker, by kind."""

    def __init__(self, config: BrokerConfig) -> None:
        self.gates = {kind: RequestLimit(limits) for kind, limits in limits_of(config).items()}

    def gate(self, call_type: type[Call[Any]]) -> RequestLimit:
        """The limit that a call counts against."""
        return self.gates[KINDS.get(call_type.code, ADMIN)]

    def configure(self, config: BrokerConfig) -> None:
        """Apply changed settings."""
        for kind, limits in limits_of(config).items():
            self.gates[kind].change(limits)


def limits_of(config: BrokerConfig) -> dict[str, AdmissionLimits]:
    """The limits of each kind: waiting requests, and the longest wait in ms."""
    capacities = {
        SEND: (config.send_capacity, config.send_wait_max),
        PULL: (config.pull_capacity, config.pull_wait_max),
        ACK: (config.ack_capacity, config.ack_wait_max),
        HEARTBEAT: (config.heartbeat_capacity, config.heartbeat_wait_max),
        TRANSACTION: (config.transaction_capacity, config.transaction_wait_max),
        QUERY: (config.query_capacity, None),
        ADMIN: (config.admin_capacity, config.admin_wait_max),
    }
    return {
        kind: AdmissionLimits(count=count, wait_ms=wait_ms if config.fast_failure else None)
        for kind, (count, wait_ms) in capacities.items()
    }


class RequestQuotas:
    """Buckets of both directions."""

    def __init__(self, config: BrokerConfig) -> None:
        self._quotas: tuple[Quota, ...] = ()
        self.buckets = _buckets(())
        self.excesses: dict[tuple[str, str, str], int] = {}
        """Requests that were refused or held up, by direction, kind and name of the quota."""
        self.configure(config)

    def configure(self, config: BrokerConfig) -> None:
        """Apply changed quotas, each with full buckets."""
        if (quotas := config.quotas) != self._quotas:
            self._quotas, self.buckets = quotas, _buckets(quotas)

    def note(self, excess: QuotaExcess) -> None:
        """Count a request that a quota holds up."""
        quota = excess.quota
        key = str(quota.direction), str(quota.kind), quota.name
        self.excesses[key] = self.excesses.get(key, 0) + 1


def _buckets(quotas: tuple[Quota, ...]) -> Mapping[QuotaDirection, QuotaBuckets]:
    return {direction: QuotaBuckets(quotas, direction) for direction in QuotaDirection}
