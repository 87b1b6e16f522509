"""Preflight checks of a read: brokers can filter, and the group has no members."""

from roquet.model.errors import CallRefused, ConfigError
from roquet.model.subscription import SQL92, Subscription
from roquet.spark.cluster.cluster_client import ClusterClient
from roquet.spark.options import GROUP
from roquet.wire.calls.bodies import CheckClientBody
from roquet.wire.calls.heartbeat import CheckSubscription
from roquet.wire.codes import ResponseCode
from roquet.wire.fastjson.codec import dumps


def check_read(cluster: ClusterClient) -> None:
    """Raise ConfigError unless the known brokers accept the filter and the group has no members."""
    settings = cluster.settings
    for broker in sorted(cluster.addresses):
        if settings.sql92 is not None:
            _check_filter(cluster, broker, settings.sql92)
        if settings.group != GROUP and not settings.share_group:
            _check_group(cluster, broker, settings.group)


def _check_filter(cluster: ClusterClient, broker: str, expression: str) -> None:
    settings = cluster.settings
    subscription = Subscription(
        topic=next(iter(settings.topics), ""), sub_string=expression, expression_type=SQL92
    )
    body = CheckClientBody(
        client_id=settings.group, group=settings.group, subscription_data=subscription
    )
    try:
        cluster.ask(broker, CheckSubscription(body=dumps(body)))
    except CallRefused as error:
        raise ConfigError(
            f"sql92: broker {broker!r} does not filter by this expression: {error.remark}; "
            "an Apache broker needs enablePropertyFilter=true"
        ) from error


def _check_group(cluster: ClusterClient, broker: str, group: str) -> None:
    try:
        members = cluster.group_members(broker, group)
    except CallRefused as error:
        if error.code in (ResponseCode.CONSUMER_NOT_ONLINE, ResponseCode.SYSTEM_ERROR):
            return  # SYSTEM_ERROR comes from brokers that do not know the group
        raise
    if members:
        raise ConfigError(
            f"group {group!r} is used by consumers ({', '.join(members)}): choose another group, "
            "or set shareGroup=true if they may see these reads in its statistics"
        )
