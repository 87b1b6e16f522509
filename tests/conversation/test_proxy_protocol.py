"""A broker behind a load balancer: policies go by the address that a PROXY header names."""

import asyncio
import struct

import msgspec
import pytest
from tests.conversation.conftest import broker_of
from tests.conversation.test_access import SECURED, allow, make_user

from roquet.broker.app import BrokerServer
from roquet.wire.calls.offset import MaxOffset
from roquet.wire.codes import ResponseCode
from roquet.wire.command import Command, decode
from roquet.wire.proxy_protocol import SIGNATURE
from roquet.wire.signing import Credentials, Signer

ASK = MaxOffset(topic="TBW102", queue_id=0)


async def answered(server: BrokerServer, user: Credentials, header: bytes) -> Command:
    """The answer to a signed request behind a PROXY header."""
    reader, writer = await asyncio.open_connection("127.0.0.1", server.port)
    writer.write(header + Signer(user).encode_call(ASK, opaque=1))
    (size,) = struct.unpack(">I", await reader.readexactly(4))
    reply = decode(await reader.readexactly(size))
    writer.close()
    return reply


@pytest.mark.real_time
async def test_policies_on_addresses_go_by_the_client_behind_the_balancer() -> None:
    async with broker_of(**SECURED, proxy_protocol_from=("127.0.0.1",)) as server:
        entry = msgspec.structs.replace(allow("Topic:TBW102", "Get"), source_ips=["192.0.2.0/24"])
        ann = await make_user(server, "ann", entry)
        inside, outside = (
            b"PROXY TCP4 %s 10.0.0.1 56324 10911\r\n" % ip for ip in (b"192.0.2.7", b"198.51.100.7")
        )
        binary = SIGNATURE + b"\x21\x11\0\x0c" + bytes([192, 0, 2, 8, 10, 0, 0, 1, 0, 7, 0, 9])
        for header in (inside, binary):
            assert (await answered(server, ann, header)).code == ResponseCode.SUCCESS
        for header, ip in ((outside, "198.51.100.7"), (b"", "127.0.0.1")):
            reply = await answered(server, ann, header)
            assert reply.code == ResponseCode.NO_PERMISSION
            assert f"from {ip}" in (reply.remark or "")
