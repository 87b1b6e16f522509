"""Heartbeat: clients register, unregister, and list the members of groups."""

from collections.abc import Iterable, Mapping
from typing import Final

from roquet.broker.broker import BrokerComponent
from roquet.broker.control import ControlPlane
from roquet.broker.coordination import GroupCoordination
from roquet.broker.filtering.filter_cache import HEARTBEAT_SIZE_MAX, TAG_TYPES
from roquet.broker.filtering.tag_expressions import parse_tag_codes
from roquet.broker.log.message_log import MessageLog
from roquet.broker.refusals import system_error
from roquet.broker.tables.broker_tables import BrokerTables
from roquet.broker.tables.clients import ConsumerGroup
from roquet.log_records import logger
from roquet.model.errors import FieldError
from roquet.model.names import retry_topic
from roquet.model.printable_text import quantity
from roquet.model.subscription import HeartbeatData
from roquet.net.router import Peer
from roquet.rules.balance.group_consistency import members_by_value, without_retry_topics
from roquet.rules.liveness import LastSeen
from roquet.wire.call import Reply
from roquet.wire.calls import heartbeat as calls
from roquet.wire.calls.bodies import CheckClientBody, ConsumerIdList
from roquet.wire.fastjson import codec
from roquet.wire.request_body import decode_body

log = logger(__name__)

CONSUMER_GROUPS_MAX: Final = 1_000
"""Consumer groups of one connection: clients have a few. This many new ones take 20 ms."""

PRODUCER_GROUPS_MAX: Final = 10_000
"""Producer groups of one connection, each a tenth of the work of a consumer group."""

LOGGED_TOPICS_MAX: Final = 5
"""Topics that a log line names when members have different subscriptions."""

TEXT_LENGTH: Final = 127
"""Characters of a topic or an expression in such a line."""

SUBSCRIPTIONS_MAX: Final = 4_096
"""Subscriptions in one heartbeat: a topic and its retry topic per group, with much reserve."""


class HeartbeatHandler(BrokerComponent, frozen=True):
    """Registers clients and the groups that they are in."""

    log: MessageLog
    tables: BrokerTables
    coordination: GroupCoordination
    control: ControlPlane

    def heartbeat(self, call: calls.Heartbeat, peer: Peer) -> calls.HeartbeatReply:
        """Register a client and its subscriptions; notifies its groups of a change."""
        data = decode_body(call.body, HeartbeatData)
        _check_names(data)
        self._check_counts(data, peer)
        if peer not in self.tables.clients:
            peer.on_close(self.coordination.forget)
        config, seen_ms = self.control.settings.config, self.control.clock.monotonic_ms()
        seen = LastSeen(seen_ms=seen_ms, limit_ms=config.client_silence)
        self.tables.clients.seen(peer, seen)
        if data.without_sub:
            known = self.tables.clients.same_as_before(peer, data.heartbeat_fingerprint)
            return calls.HeartbeatReply(supports_v2=True, subscription_changed=not known)
        self._make_groups(data)
        left = HEARTBEAT_SIZE_MAX
        for consumer in data.consumer_data_set:
            wishes = consumer.subscription_data_set
            left = self.log.filters.precompile(config, consumer.group_name, wishes, left)
        is_checked = config.authentication_enabled  # else anybody's word
        user = call.access_key if is_checked and call.access_key else ""
        changed = self.tables.clients.beat(peer, data, user)
        for consumer in data.consumer_data_set:
            self._look_for_factions(consumer.group_name)
        self.coordination.notify(changed)
        return calls.HeartbeatReply(supports_v2=True, subscription_changed=True)

    def unregister(self, call: calls.Unregister, peer: Peer) -> Reply:
        """Remove a client from a group."""
        group = call.consumer_group
        member = self.tables.clients.member(group, peer) if group else None
        if self.tables.clients.leave(peer, producer=call.producer_group, consumer=group) and group:
            self.coordination.member_left(group, member or call.client_id)
            self.coordination.notify([group])
        return Reply()

    def consumers(self, call: calls.GetConsumers, _peer: Peer) -> Reply:
        """Return the client ids of a group's members."""
        group = self.tables.clients.consumers(call.consumer_group)
        if group is None:
            raise system_error(f"no consumer for this group, {call.consumer_group}")
        return Reply(body=codec.dumps(ConsumerIdList(consumer_id_list=group.client_ids)))

    def check_subscription(self, call: calls.CheckSubscription, _peer: Peer) -> Reply:
        """Check a filter expression. CallRefused for one with an error."""
        body = decode_body(call.body, CheckClientBody) if call.body else None
        subscription = body.subscription_data if body else None
        if subscription is not None:
            kind, expression = subscription.expression_type, subscription.sub_string
            if kind in TAG_TYPES:
                parse_tag_codes(expression)
            else:
                self.log.filters.find(self.control.settings.config, kind, expression)
        return Reply()

    def _look_for_factions(self, name: str) -> None:
        """Warn once when a group's members begin to have different subscriptions."""
        group = self.tables.clients.consumers(name)
        if group is None or not group.is_changed:
            return
        group.is_changed = False
        is_divided = group.wants_different_things()
        if is_divided and not group.is_divided:
            text = (
                "members of %s listen to different things: %s; members of a group share all its "
                "messages: give each the same topics and filters, or a group of its own"
            )
            log.warning(text, name, _difference(group), extra={"group": name})
        group.is_divided = is_divided

    def _make_groups(self, data: HeartbeatData) -> None:
        now_ms = self.control.clock.now_ms()
        groups = self.tables.groups.announce((c.group_name for c in data.consumer_data_set), now_ms)
        topics = {retry_topic(group.group_name): group.retry_queue_nums for group in groups}
        self.tables.topics.announce_for_groups(topics, now_ms)

    def _check_counts(self, data: HeartbeatData, peer: Peer) -> None:
        """CallRefused for a heartbeat over the limits, before any work is done for it."""
        wishes = sum(len(consumer.subscription_data_set) for consumer in data.consumer_data_set)
        producers, consumers = self.tables.clients.group_counts(peer, data)
        for count, limit, what in (
            (producers, PRODUCER_GROUPS_MAX, "producer groups on one connection"),
            (consumers, CONSUMER_GROUPS_MAX, "consumer groups on one connection"),
            (wishes, SUBSCRIPTIONS_MAX, "subscriptions in one heartbeat"),
        ):
            if count > limit:
                raise system_error(
                    f"heartbeat refused: {count} {what}, the limit is {limit}; use more clients"
                )


def _check_names(data: HeartbeatData) -> None:
    """FieldError for a client without an id, or a group or topic of it without a name."""
    if not data.client_id:
        raise FieldError("HeartbeatData: $.clientID is missing")
    producing = [producer.group_name for producer in data.producer_data_set]
    consuming = [consumer.group_name for consumer in data.consumer_data_set]
    if not all(producing) or not all(consuming):
        raise FieldError("HeartbeatData: $.groupName of a group is missing")
    if not all(
        wish.topic for group in data.consumer_data_set for wish in group.subscription_data_set
    ):
        raise FieldError("HeartbeatData: $.topic of a subscription is missing")


def _difference(group: ConsumerGroup) -> str:
    """The differences of the two most common subscriptions, and the members of each."""
    by_client = {member.client_id: member for member in group.members.values()}
    by_wish = members_by_value(
        {client_id: member.own_wish for client_id, member in by_client.items()}
    )[:2]
    ours, theirs = (without_retry_topics(by_client[members[0]].wishes) for _, members in by_wish)
    topics = sorted(t for t in {**ours, **theirs} if ours.get(t) != theirs.get(t))
    differences = [
        f"{_shortened(wish, topics[:LOGGED_TOPICS_MAX])} ({quantity(len(members), 'member')})"
        for wish, (_, members) in zip((ours, theirs), by_wish, strict=True)
    ]
    more = len(topics) - LOGGED_TOPICS_MAX
    return " against ".join(differences) + (f", and {more} more topics" if more > 0 else "")


def _shortened(wish: Mapping[str, str], topics: Iterable[str]) -> dict[str, str]:
    return {t[:TEXT_LENGTH]: wish[t][:TEXT_LENGTH] for t in topics if t in wish}
