"""Requests of operators: settings of this controller, and brokers that will not come back."""

from roquet.controller.controller import Controller
from roquet.controller.request_fields import broker_ids, check_cluster, check_texts
from roquet.controller.settings import BLACK_LIST, changed_settings, shown_settings
from roquet.log_records import logger
from roquet.model.errors import CallRefused, ConfigError
from roquet.net.router import Peer
from roquet.rules.election.group import Refusal, RefusalCode, ReplicaGroup, clean_group, outdated
from roquet.rules.election.lease import logs_promised
from roquet.wire.call import Reply
from roquet.wire.calls.controller import (
    CleanBrokerData,
    GetControllerSettings,
    UpdateControllerSettings,
)
from roquet.wire.codes import ResponseCode
from roquet.wire.properties_file import requested_settings, write_properties

log = logger(__name__)


async def clean(controller: Controller, call: CleanBrokerData, peer: Peer) -> Reply:
    """Remove brokers of a group, or all of them.

    The group is then in the latest epoch that its brokers have told of, also if its state was lost:
    they may apply for ids again and elect a master.
    """
    name, cluster = call.broker_name, call.cluster_name or ""
    check_texts(brokerName=name)
    check_cluster(cluster)
    ids = broker_ids(call.broker_controller_ids_to_clean or "")
    epoch_known = controller.elections.epoch_known(name)

    def decide(group: ReplicaGroup | None) -> ReplicaGroup | Refusal:
        keeps_some = ids and group is not None and group.replicas.keys() - ids
        if keeps_some and controller.elections.is_outdated(name):
            return Refusal(RefusalCode.INVALID_CLEAN_BROKER_METADATA, outdated(name).remark)
        if group is None and epoch_known > 0:
            group = ReplicaGroup(cluster=cluster, name=name, replicas={})
        if group is None:
            return clean_group(None, ids, {})
        live = controller.liveness.live(group)
        members = [one.candidate for key, one in live.items() if key in group.in_sync]
        return clean_group(
            group,
            ids,
            live,
            even_living=call.is_clean_living_broker,
            epoch_known=epoch_known,
            logs_promised=logs_promised(group, (one.logs_needed for one in members)),
        )

    await controller.leadership.leader_state().update(name, decide)
    log.warning("%s cleaned group %s of brokers %s", peer.address, name, sorted(ids) or "all")
    return Reply()


def all_settings(controller: Controller, _call: GetControllerSettings, _peer: Peer) -> Reply:
    """All settings, under Apache's keys."""
    return Reply(body=write_properties(shown_settings(controller.config)).encode())


def update(controller: Controller, call: UpdateControllerSettings, peer: Peer) -> Reply:
    """Change settings until the next start: all of the requested ones, or none."""
    requested = requested_settings(call.body, BLACK_LIST)
    try:
        controller.configure(changed_settings(controller.config, requested))
    except ConfigError as error:
        raise CallRefused(ResponseCode.SYSTEM_ERROR, str(error)) from error
    log.info("%s changes settings: %s", peer.address, requested)
    return Reply()
