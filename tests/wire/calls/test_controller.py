"""Calls of a controller: headers and bodies against Apache's, and frames of a genuine one."""

from typing import Any

import pytest
from tests.vector_lines import vector_lines

from roquet.wire.call import Call, Reply
from roquet.wire.calls import controller as calls
from roquet.wire.calls.admin.namesrv import BrokerMembers
from roquet.wire.calls.replication import NotifyRoleChanged
from roquet.wire.calls.route import BrokerHeartbeat
from roquet.wire.codes import ResponseCode
from roquet.wire.command import decode
from roquet.wire.fastjson import codec
from roquet.wire.fields import decode_call, decode_reply, encode_call, encode_reply, to_ext
from roquet.wire.frame import FrameReader

Json = dict[str, Any]

CAPTURED = vector_lines("replication/controller-frames.jsonl")

CALLS: dict[int, type[Call[Any]]] = {
    904: BrokerHeartbeat,
    1001: calls.AlterSyncStateSet,
    1002: calls.ElectMaster,
    1003: calls.RegisterWithController,
    1004: calls.GetReplicaInfo,
    1005: calls.GetControllerMetadata,
    1006: calls.GetSyncStateData,
    1008: NotifyRoleChanged,
    1012: calls.GetNextBrokerId,
    1013: calls.ApplyBrokerId,
}

BODY_OF: dict[int, Any] = {
    1001: calls.SyncStateSet,
    1002: calls.ElectMasterBody,
    1003: calls.SyncStateSet,
    1004: calls.SyncStateSet,
    1006: calls.SyncStateData,
    1008: calls.SyncStateSet,
}


@pytest.mark.parametrize(
    "captured", CAPTURED, ids=[f"{c['code']}-{c['kind']}-{n}" for n, c in enumerate(CAPTURED)]
)
def test_genuine_frames_are_read_and_written_again(captured: Json) -> None:
    (frame,) = FrameReader().feed(bytes.fromhex(captured["hex"]))
    command, kind = decode(frame), CALLS[captured["code"]]
    assert kind.code == captured["code"]
    value: Call[Any] | Reply
    if captured["kind"] == "req":
        value = decode_call(command, kind)
        stream = encode_call(value, opaque=1)
    else:
        value = decode_reply(command, kind.reply)
        assert type(value) is kind.reply
        stream = encode_reply(value, command)
    (again,) = FrameReader().feed(stream)
    sent = decode(again)
    assert to_ext(value).items() >= (captured["ext"] or {}).items()
    assert sent.body == captured["body"].encode()
    if captured["body"] and captured["body"][0] == "{":
        typed = codec.loads(value.body, BODY_OF[captured["code"]])
        assert codec.dumps(typed) == value.body


def test_an_election_names_the_members_and_the_set() -> None:
    (text,) = [c["body"] for c in CAPTURED if (c["code"], c["kind"]) == (1002, "resp")]
    members = BrokerMembers(cluster="C", broker_name="bc", broker_addrs={1: "127.0.0.1:21941"})
    body = codec.loads(text, calls.ElectMasterBody)
    assert body == calls.ElectMasterBody(broker_member_group=members, sync_state_set=[1])


def test_an_election_for_an_operator_can_be_read_as_members_of_a_group() -> None:
    addresses = {1: "127.0.0.1:21941"}
    members = BrokerMembers(cluster="C", broker_name="bc", broker_addrs=addresses)
    body = calls.OperatorElectMasterBody(
        broker_member_group=members,
        sync_state_set=[1],
        cluster="C",
        broker_name="bc",
        broker_addrs=addresses,
    )
    text = codec.dumps(body, standard=True)
    assert codec.loads(text, BrokerMembers) == members
    assert codec.loads(text, calls.ElectMasterBody).broker_member_group == members


def test_a_master_that_still_leads_is_an_answer() -> None:
    assert ResponseCode.CONTROLLER_MASTER_STILL_EXIST in calls.ElectMaster.accepts


def test_replicas_are_listed_with_whether_they_live() -> None:
    (text,) = [c["body"] for c in CAPTURED if (c["code"], c["kind"]) == (1006, "resp")]
    info = codec.loads(text, calls.SyncStateData).replicas_info_table["bc"]
    assert (info.master_broker_id, info.master_epoch, info.sync_state_set_epoch) == (1, 1, 2)
    assert [(one.broker_id, one.alive) for one in info.in_sync_replicas] == [(1, True), (2, True)]
    assert info.not_in_sync_replicas == []
