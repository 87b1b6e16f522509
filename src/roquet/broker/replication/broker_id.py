"""Broker id: applied for once at the controller, and kept in a file for good.

    brokerIdentity          ──▶ the id
    brokerIdentity-temp     ──▶ apply for the same id again, with the same check code
    neither                 ──▶ ask for the next id, note it, apply for it

The application is noted before it is made, so a broker that dies between any two steps goes on
with its own id. Source: Apache RocketMQ 5.5.0, ReplicasManager.register.
"""

from random import Random
from typing import Final, Protocol

from roquet.broker.replication.controller_client import ControllerClient, GroupMember
from roquet.log_records import logger
from roquet.model.errors import CallRefused, ConfigError
from roquet.net.clock import Clock
from roquet.wire.codes import ResponseCode
from roquet.wire.replication.broker_identity import BrokerIdentity, check_code

log = logger(__name__)

TRIES_MAX: Final = 5
"""Ids that are applied for in a row: others may be faster."""

PAUSE_MS: Final = 1_000
"""Longest random pause in ms between two tries, as of Apache's brokers."""


class IdentityFiles(Protocol):
    """The files brokerIdentity and brokerIdentity-temp."""

    def read(self) -> BrokerIdentity | None:
        """The identity that the controller has confirmed; None without one."""

    def read_application(self) -> BrokerIdentity | None:
        """The application that was begun; None without one."""

    def write_application(self, application: BrokerIdentity) -> None:
        """Note, durably, what is about to be applied for."""

    def confirm(self, identity: BrokerIdentity) -> None:
        """Note, durably, what the controller has confirmed, and forget the application."""

    def drop_application(self) -> None:
        """Forget an application that was refused."""


def check_identity(identity: BrokerIdentity, member: GroupMember) -> None:
    """ConfigError for the identity of another cluster or group: the directory is another's."""
    if (identity.cluster, identity.broker_name) != (member.cluster, member.name):
        raise ConfigError(
            f"the directory belongs to broker {identity.broker_id} of {identity.broker_name} in "
            f"cluster {identity.cluster}, not to {member.name} in {member.cluster}: set brokerName "
            "and brokerClusterName as they were, or use another directory"
        )


def known_id(files: IdentityFiles, member: GroupMember) -> int | None:
    """Id that a controller has confirmed; None without one. ConfigError for another group's."""
    for identity in (files.read_application(), files.read()):
        if identity is not None:
            check_identity(identity, member)
    return None if identity is None else identity.broker_id


async def obtain_id(
    files: IdentityFiles, client: ControllerClient, member: GroupMember, clock: Clock, rng: Random
) -> int:
    """The broker's id, applied for unless it is known. Raises CallError and ConfigError."""
    if (broker_id := known_id(files, member)) is not None:
        return broker_id
    for left in reversed(range(TRIES_MAX)):
        application = files.read_application() or await _begin(files, client, member, clock)
        assert application.check_code is not None, "an application has a check code"
        try:
            await client.apply_id(application.broker_id, application.check_code)
        except CallRefused as error:
            if error.code != ResponseCode.CONTROLLER_BROKER_ID_INVALID or not left:
                raise
            files.drop_application()
            await clock.sleep(rng.randrange(PAUSE_MS))
            continue
        identity = BrokerIdentity(
            cluster=member.cluster, broker_name=member.name, broker_id=application.broker_id
        )
        files.confirm(identity)
        log.info("this is broker %d of %s", identity.broker_id, member.name)
        return identity.broker_id
    raise AssertionError("the last try returns or raises")


async def _begin(
    files: IdentityFiles, client: ControllerClient, member: GroupMember, clock: Clock
) -> BrokerIdentity:
    """Note an application for the next id."""
    application = BrokerIdentity(
        cluster=member.cluster,
        broker_name=member.name,
        broker_id=await client.next_id(),
        check_code=check_code(member.address, clock.now_ms()),
    )
    files.write_application(application)
    return application
