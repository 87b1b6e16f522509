"""RequestQuotas: the quotas of one broker from its settings, and how often each one held up."""

from collections.abc import Mapping

from roquet.broker.settings.config import BrokerConfig
from roquet.rules.quota import Quota, QuotaBuckets, QuotaDirection, QuotaExcess


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
