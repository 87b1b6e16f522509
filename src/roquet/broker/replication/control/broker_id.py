"""Broker id: applied for once at the controller, and kept in a file for good.

    brokerIdentity          ──▶ the id
    brokerIdentity-temp     ──▶ apply for the same id again, with the same check code
    neither                 ──▶ ask for the next id, note it, apply for it

The application is noted before it is made, so a broker that dies between any two steps goes on
with its own id. Source: Apache RocketMQ 5.5.0, ReplicasManager.register.
"""

from random import Random
from typing import Final

from roquet.broker.replication.control.controller_client import ControllerClient, OwnBroker
from roquet.log_records import logger
from roquet.model.errors import CallRefused, ConfigError
from roquet.net.clock import Clock
from roquet.store.replication.identity_file import BrokerIdentity, IdentityFile, check_code
from roquet.wire.codes import ResponseCode

log = logger(__name__)

TRIES_MAX: Final = 5
"""Ids that are applied for in a row: others may be faster."""

PAUSE_MS: Final = 1_000
"""Longest random pause in ms between two tries, as of Apache's brokers."""


def known_id(file: IdentityFile, cluster: str, name: str) -> int | None:
    """Id that a controller has confirmed; None without one.

    Raises ConfigError for the identity of another cluster or group, StoreError for a damaged one.
    """
    identity, application = file.load(), file.application().load()
    for found in (identity, application):
        if found is not None and (found.cluster, found.broker_name) != (cluster, name):
            raise ConfigError(
                f"{file.path} belongs to broker {found.broker_id} of {found.broker_name} in "
                f"cluster {found.cluster}, not to {name} in {cluster}: set brokerName and "
                "brokerClusterName as they were, or use another directory"
            )
    return None if identity is None else identity.broker_id


async def obtain_id(
    file: IdentityFile, client: ControllerClient, member: OwnBroker, clock: Clock, rng: Random
) -> int:
    """The broker's id, applied for unless it is known. Raises CallError and ConfigError."""
    if (broker_id := known_id(file, member.cluster, member.name)) is not None:
        return broker_id
    for left in reversed(range(TRIES_MAX)):
        application = file.application().load() or await _begin(file, client, member, clock)
        try:
            await client.apply_id(application.broker_id, application.check_code or "")
        except CallRefused as error:
            if error.code != ResponseCode.CONTROLLER_BROKER_ID_INVALID or not left:
                raise
            file.application().remove()
            await clock.sleep(rng.randrange(PAUSE_MS))
            continue
        identity = BrokerIdentity(
            cluster=member.cluster, broker_name=member.name, broker_id=application.broker_id
        )
        file.save(identity)
        file.application().remove()
        log.info("this is broker %d of %s", identity.broker_id, member.name)
        return identity.broker_id
    raise AssertionError("the last try returns or raises")


async def register(
    broker_id: int, client: ControllerClient, member: OwnBroker, clock: Clock
) -> None:
    """Report the broker's address; a controller that forgot the id is asked for it again.

    An operator may have removed the group. Raises CallError.
    """
    try:
        await client.register(broker_id)
    except CallRefused as error:
        if error.code != ResponseCode.CONTROLLER_BROKER_NEED_TO_BE_REGISTERED:
            raise
        await client.apply_id(broker_id, check_code(member.address, clock.now_ms()))
        await client.register(broker_id)


async def _begin(
    file: IdentityFile, client: ControllerClient, member: OwnBroker, clock: Clock
) -> BrokerIdentity:
    """Note an application for the next id."""
    application = BrokerIdentity(
        cluster=member.cluster,
        broker_name=member.name,
        broker_id=await client.next_id(),
        check_code=check_code(member.address, clock.now_ms()),
    )
    file.application().save(application)
    return application
