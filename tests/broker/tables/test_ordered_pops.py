import json
from pathlib import Path

from roquet.broker.tables.ordered_pops import OrderedPops
from roquet.broker.tables.saved_table import TableFile
from roquet.rules.consumption.ordered_pop import hold
from roquet.store.filesystem.memory_files import MemoryFiles

PATH = Path("/config/consumerOrderInfo.json")


def test_held_queues_survive_a_restart() -> None:
    files = MemoryFiles()
    orders = OrderedPops(TableFile(files, PATH))
    held = hold(hold(None, [7, 8], 900, 60_000, "a"), [7, 8, 10], 1_000, 60_000, "b")
    held.acked = 0b10
    held.visible_ms[7] = 5_000
    held.suspended.add(8)
    orders.put("g", "t", 3, held)
    orders.save()
    assert OrderedPops(TableFile(files, PATH)).get("g", "t", 3) == held


def test_the_file_equals_that_of_apaches_broker() -> None:
    files = MemoryFiles()
    orders = OrderedPops(TableFile(files, PATH))
    orders.put("g", "t", 0, hold(None, [7, 8], 1_000, 60_000, "a"))
    orders.save()
    text = files.read(PATH).decode()
    assert json.loads(text.replace("0:{", '"0":{'))["table"]["t@g"]["0"] == {
        "popTime": 1_000, "i": 60_000, "o": [7, 1], "ot": {}, "oc": {}, "l": 1_000, "cm": 0,
        "a": "a",
    }  # fmt: skip


def test_an_apache_file_without_anything_held_is_read() -> None:
    files = MemoryFiles()
    text = '{\n\t"orderInfoCount":0,\n\t"orderedConsumptionLevel":"QUEUE",\n\t"table":{}\n}'
    files.replace(PATH, text.encode())
    assert OrderedPops(TableFile(files, PATH)).get("g", "t", 0) is None


def test_free_queues_are_removed() -> None:
    orders = OrderedPops(None)
    orders.put("g", "t", 0, hold(None, [7], 1_000, 60_000, None))
    orders.free("g", "t", 0)
    orders.free("g", "t", 0)
    assert orders.get("g", "t", 0) is None
    assert orders.content().table == {}


def test_queues_of_deleted_topics_and_groups_are_free() -> None:
    orders = OrderedPops(None)
    for group, topic in (("g", "t"), ("g", "u"), ("h", "u")):
        orders.put(group, topic, 0, hold(None, [1], 900, 60_000, None))
    orders.unsaved = False
    orders.forget(topics=["v"], group="i")
    assert not orders.unsaved
    orders.forget(topics=["t"])
    assert orders.unsaved
    assert orders.get("g", "t", 0) is None
    orders.forget(group="g")
    assert [orders.get(g, "u", 0) is not None for g in ("g", "h")] == [False, True]
