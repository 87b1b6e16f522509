"""Wiring: which parts of a broker follow a change in another one, and in which order.

All parts have been built by then, each whole. ARCHITECTURE.md shows these signals (`make map`).
"""

from functools import partial

from roquet.broker.broker import Broker
from roquet.broker.ingest.set_aside import INDEX, RecordLocation, location_in
from roquet.broker.operations.throttling import Throttle
from roquet.broker.operations.unread_messages import BrokerUnreadMessages
from roquet.broker.replication.role import Role, RoleTasks
from roquet.broker.replication.role_gate import RoleGate
from roquet.broker.replication.stream.log_comparison import LogComparison
from roquet.broker.settings.config import BrokerConfig
from roquet.broker.settings.store_settings import retention_policy
from roquet.broker.startup import (
    close_foreign_log,
    follow_acting_master,
    prepare_cut,
    warn_of_long_delays,
)
from roquet.model.names import OP_HALF_TOPIC
from roquet.observe.log_levels import apply_log_levels
from roquet.rules.replication.acknowledgement import BrokerRole


def connect(
    broker: Broker, gate: RoleGate, tasks: RoleTasks, throttle: Throttle, comparison: LogComparison
) -> None:
    """Let each part follow the changes in others: they are told in this order."""
    log, tables, delivery, control = broker.log, broker.tables, broker.delivery, broker.control
    replication, coordination = broker.replication, broker.coordination
    mode, registration, settings = replication.mode, control.registration, control.settings
    stream, acting, set_aside = replication.stream_client, mode.acting_master, delivery.set_aside

    replication.role.on_change += [
        replication.acknowledgements.configure,
        replication.stream_server.follow_role,
        stream.follow_role,
        acting.follow_role,
        partial(_follow_role, broker),
        gate.follow_role,
        partial(_register_role, broker),
        tasks.follow_role,
    ]
    acting.on_change += [gate.refuse_reads, partial(follow_acting_master, broker)]
    acting.on_outdated += [registration.request]
    stream.check_log = comparison.check
    stream.on_compared += [gate.refuse_reads]
    if (controlled := replication.controller_mode) is not None:
        controlled.before_cut += [partial(prepare_cut, broker)]
        controlled.after_cut += [controlled.view.cut]

    settings.checks += [mode.settings_fault, partial(_retention_fault, broker)]
    settings.subscribe(mode.configure)
    settings.subscribe(replication.acknowledgements.configure)
    settings.subscribe(replication.stream_server.end_unwelcome, "ha_replicas", "ha_plain_replicas")
    settings.subscribe(log.ingest.configure)
    settings.subscribe(control.admission.configure)
    settings.subscribe(lambda config: log.store.set_retention(retention_policy(config)))
    settings.subscribe(lambda config: delivery.timer.configure(config.retention), "retention")
    settings.subscribe(warn_of_long_delays, "retention")
    settings.subscribe(lambda config: apply_log_levels(config.log_levels), "log_levels")
    settings.subscribe(
        lambda config: tables.topics.configure(config, control.clock.now_ms()),
        "permission",
        "auto_create_topic",
    )
    settings.subscribe(throttle.follow, "quotas")
    settings.subscribe(gate.refuse_reads, "slave_read_enable")
    settings.subscribe(registration.request)

    tables.topics.on_change += [coordination.handover.queues_changed, registration.request]
    coordination.rebalance.on_change.append(coordination.notify)
    tables.offsets.before_save = delivery.checkpoints.lower
    delivery.timer.may_save = delivery.checkpoints.wait_confirmed
    log.flush.on_flushed += [mode.follow_flush]
    log.arrivals.on_hidden = mode.flush_hidden
    log.store.on_unindexed(partial(_set_aside_unindexed, broker))
    log.store.unread = BrokerUnreadMessages(broker)
    set_aside.on_index = log.store.reindex
    set_aside.on_retry |= {
        delivery.revive.topic: delivery.revive.retried,
        OP_HALF_TOPIC: delivery.transactions.retried,
    }


def _follow_role(broker: Broker, before: Role, role: Role) -> None:
    """Follow another role; locks of a master that is fenced for a moment stay valid."""
    close_foreign_log(broker)
    if before.is_master and not role.is_master:
        broker.tables.locks.clear()  # another broker grants them from now on


def _register_role(broker: Broker, before: Role, role: Role) -> None:
    """Register again after a change of what name servers are told: id, epoch, or silence."""
    if _registered_as(before) != _registered_as(role):
        broker.control.registration.request()


def _registered_as(role: Role) -> tuple[BrokerRole, int, int, bool]:
    """Fields of a role that name servers notice; a fenced broker does not register at all."""
    return role.role, role.broker_id, role.epoch, role.is_fenced


def _retention_fault(broker: Broker, before: BrokerConfig, config: BrokerConfig) -> str | None:
    """Why a shorter retention cannot be in force now; None when it can."""
    shorter = config.retention < before.retention
    return broker.delivery.timer.retention_fault(config.retention) if shorter else None


def _set_aside_unindexed(broker: Broker, position: int, error: Exception) -> None:
    """Set aside a record whose keys cannot be indexed: it can be read, but no key finds it."""
    raw = broker.log.store.message_at(position, only_confirmed=False)
    location = location_in(raw, "?", 0) if raw else RecordLocation("?", 0, 0, position)
    broker.delivery.set_aside.keep(INDEX, location, error, raw)
