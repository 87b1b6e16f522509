"""Quotas from the settings, and how often they held up."""

import msgspec

from roquet.broker.quotas import RequestQuotas
from roquet.broker.settings.config import BrokerConfig
from roquet.rules.quota import QuotaDirection, QuotaSubject, parse_quotas

SUBJECT = QuotaSubject(user="", topic="orders", client="")


def with_quotas(text: str) -> BrokerConfig:
    return BrokerConfig(quotas=parse_quotas(text, "quotas"))


def test_quotas_follow_the_settings() -> None:
    quotas = RequestQuotas(BrokerConfig())
    assert all(buckets.is_empty for buckets in quotas.buckets.values())
    config = with_quotas("topic:* send 1/s")
    quotas.configure(config)
    quotas.buckets[QuotaDirection.SEND].charge(SUBJECT, 2, 0, 0)
    quotas.configure(msgspec.structs.replace(config, auto_create_topic=False))
    excess = quotas.buckets[QuotaDirection.SEND].excess(SUBJECT, 0)
    assert excess is not None
    quotas.note(excess)
    quotas.note(excess)
    assert quotas.excesses == {("send", "topic", "*"): 2}
