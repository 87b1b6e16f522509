import json
from collections.abc import Iterator
from pathlib import Path

import pytest
from tests.cli.running import must_fail, roquet

from roquet.client import blocking
from roquet.model.errors import UsageError
from roquet.model.message import Message
from roquet.model.results import SendReceipt
from roquet.net.channel import Channel
from roquet.testing.cluster import BlockingCluster
from roquet.wire.calls.send import Send, SendBatch
from roquet.wire.records.batch import BatchItem, encode_batch


@pytest.fixture(scope="module")
def sent() -> Iterator[tuple[str, SendReceipt]]:
    """The name server, and the receipt of one message of a topic with two."""
    with BlockingCluster(default_queue_count=1) as cluster:
        with blocking.Producer(cluster.namesrv_addr) as producer:
            receipt = producer.send("orders", b"a\nb", keys=("k1",), tag="T", properties={"p": "v"})
            producer.send("orders", b"\xff")
        yield cluster.namesrv_addr, receipt


def test_a_message_is_shown_with_everything_known(sent: tuple[str, SendReceipt]) -> None:
    namesrv, receipt = sent
    text = roquet("message", "show", receipt.message_id, "-t", "orders", "-n", namesrv).output
    assert "place:        broker-a queue 0 offset 0" in text
    assert "  p = v" in text.splitlines()
    assert text.endswith("\n\n  a\n  b\n"), "lines of a body are never at the margin"
    by_place = roquet("message", "show", receipt.offset_message_id, "--json", "-n", namesrv).output
    assert json.loads(by_place)["body"] == "a\nb"


def test_messages_are_found_by_key_and_by_time(sent: tuple[str, SendReceipt]) -> None:
    namesrv, receipt = sent
    (line,) = roquet("message", "find", "orders", "--key", "k1", "-n", namesrv).output.splitlines()
    assert line.startswith(receipt.message_id)
    assert line.endswith("broker-a:0:0  tag T  key k1  a b")
    assert len(roquet("message", "find", "orders", "-n", namesrv).output.splitlines()) == 2
    early = roquet("message", "find", "orders", "--to", "2020-01-01", "-n", namesrv)
    assert (early.exit_code, early.stderr) == (1, "no message of orders from that time\n")


def test_the_message_at_a_place_is_shown(sent: tuple[str, SendReceipt]) -> None:
    namesrv, _ = sent
    text = roquet("message", "at", "orders", "broker-a", "0", "1", "--json", "-n", namesrv).output
    assert json.loads(text)["body_base64"] == "/w=="
    beyond = roquet("message", "at", "orders", "broker-a", "0", "7", "-n", namesrv)
    assert (beyond.exit_code, beyond.stderr) == (1, "no message at 7\n")
    with pytest.raises(UsageError, match="there is no queue"):
        roquet("message", "at", "orders", "broker-a", "5", "0", "-n", namesrv)


def test_a_missing_message_is_an_error(sent: tuple[str, SendReceipt]) -> None:
    namesrv, _ = sent
    none = roquet("message", "find", "orders", "--key", "k9", "-n", namesrv)
    assert (none.exit_code, none.stderr) == (1, "no message of orders with key 'k9'\n")
    must_fail(UsageError, "not 32 or 56", "message", "show", "abc", "-n", namesrv)
    must_fail(UsageError, "--from", "message", "find", "orders", "--from", "soon", "-n", namesrv)


def test_an_id_that_its_topic_does_not_have_is_not_found(sent: tuple[str, SendReceipt]) -> None:
    namesrv, receipt = sent
    other = receipt.message_id[:-8] + "00000000"
    none = roquet("message", "show", other, "--topic", "orders", "-n", namesrv)
    assert (none.exit_code, none.stderr) == (1, f"no message {other}\n")
    must_fail(UsageError, r"too \(--topic\)", "message", "show", other, "-n", namesrv)


def test_a_key_with_another_blank_than_u_0020_is_found(sent: tuple[str, SendReceipt]) -> None:
    namesrv, _ = sent
    keys = ("lot\u3000A", "lot\xa0B", "lot\tC", "\u3000D")
    with blocking.Producer(namesrv) as producer:
        producer.send("lots", b"x", keys=keys)
    for key in keys:
        found = roquet("message", "find", "lots", "--key", key, "--json", "-n", namesrv).output
        assert json.loads(found)["keys"] == list(keys)


async def call(address: str, request: Send) -> None:
    """Send messages as a client of another language may."""
    host, _, port = address.rpartition(":")
    channel = await Channel.connect(host, int(port))
    await channel.call(request)
    await channel.close()


def test_properties_that_are_not_utf_8_are_shown_everywhere(tmp_path: Path) -> None:
    message_id, shown = "7F" * 16, "\ufffd\ufffd\u01e9"
    raw = f"UNIQ_KEY\x01{message_id}\x02TAGS\x01标签\x02KEYS\x01标签 k\x02".encode("gbk")
    with BlockingCluster(default_queue_count=1, store=tmp_path) as cluster:
        batch = SendBatch(
            producer_group="g", topic="t", queue_id=0, born_timestamp=1, properties="", batch=True,
            body=encode_batch([BatchItem(0, b"x", raw)]),
        )  # fmt: skip
        cluster.run(call(cluster.broker_addrs[0], batch))
        for command in (
            ("message", "find", "t", "--key", "k"),
            ("message", "find", "t", "--key", shown),
            ("message", "find", "t"),
            ("message", "show", message_id, "--topic", "t"),
            ("message", "at", "t", "broker-a", "0", "0"),
            ("consume", "t", "--count", "1"),
        ):
            found = json.loads(roquet(*command, "--json", "-n", cluster.namesrv_addr).stdout)
            assert (found["tag"], found["keys"]) == (shown, [shown, "k"])
        text = roquet("message", "find", "t", "--key", "k", "-n", cluster.namesrv_addr).output
        assert f"tag {shown}" in text
    (log,) = tmp_path.rglob("commitlog/0*")
    (item, *_) = roquet("dump", str(log), "--json").stdout.splitlines()
    assert json.loads(item)["properties"]["TAGS"] == shown


def test_a_count_that_leaves_messages_out_is_said(sent: tuple[str, SendReceipt]) -> None:
    namesrv, _ = sent
    with blocking.Producer(namesrv) as producer:
        producer.send_many([Message("many", b"%d" % n, keys=("k",)) for n in range(70)])
    for options, which in ((("--key", "k"), "newest"), ((), "oldest")):
        found = roquet("message", "find", "many", *options, "--count", "69", "-n", namesrv)
        assert len(found.stdout.splitlines()) == 69
        assert found.stderr == f"the {which} 69 of at least 70; --count shows more\n"
        whole = roquet("message", "find", "many", *options, "--count", "70", "-n", namesrv)
        assert (len(whole.stdout.splitlines()), whole.stderr) == (70, "")


def test_a_body_that_cannot_be_restored_is_shown_as_it_is_stored() -> None:
    with BlockingCluster(default_queue_count=1) as cluster:
        broken = Send(
            producer_group="g", topic="%DLQ%g", queue_id=0, born_timestamp=1, sys_flag=1,
            properties="RETRY_TOPIC\x01t\x02KEYS\x01k\x02", body=b"not zlib",
        )  # fmt: skip
        cluster.run(call(cluster.broker_addrs[0], broken))
        namesrv = cluster.namesrv_addr
        for command in (
            ("message", "find", "%DLQ%g", "--key", "k"),
            ("message", "find", "%DLQ%g"),
            ("message", "at", "%DLQ%g", "broker-a", "0", "0"),
            ("dlq", "show", "g"),
        ):
            found = json.loads(roquet(*command, "--json", "-n", namesrv).stdout)
            assert found["body"] == "not zlib"
            assert found["body_note"].startswith("as it is stored: body is not zlib")
        resent = roquet("dlq", "resend", "g", "--all", "-y", "-n", namesrv)
        assert resent.exit_code == 1
        assert "has no whole body to send" in resent.stderr


def test_why_a_message_waits_is_told_with_what_would_tell_more(
    sent: tuple[str, SendReceipt],
) -> None:
    namesrv, receipt = sent
    command = ["message", "why-late", receipt.message_id, "-t", "orders", "-n", namesrv]
    text = roquet(*command, "--group", "billing").output
    assert f"{receipt.message_id} of orders, group billing: not handled yet" in text
    assert "stored at broker-a queue 0 offset 0" in text
    assert "it waited in queue 0" in text
    assert "`trace=True` in ConsumerConfig" in text
    (account,) = roquet(*command, "--json").output.splitlines()
    assert json.loads(account)["group"] is None
