"""Every class of the vectors is compared with one of ours, or has a reason why not."""

import json
import re
from collections.abc import Mapping
from functools import cache
from pathlib import Path

import pytest

HERE = Path(__file__).parent
VECTORS = HERE.parents[1] / "vectors"

STATIC = "topics spread over brokers by a table"
LITE = "lite topics"
CONTAINER = "several brokers in one process"
ROCKSDB = "RocksDB"
NO_CODE = "no code of the protocol carries it"

NOT_HERE: Mapping[str, str] = {
    r"TopicQueueMapping|TopicRemapping|LogicQueueMapping": STATIC,
    r"Lite|GetParentTopicInfo|SimpleSubscriptionData": LITE,
    r"^(Add|Remove)BrokerRequest": CONTAINER,
    r"Rocks[dD][bB]": ROCKSDB,
    r"RoleChangeNotifyEntry": "passed between the threads of a controller",
    r"InitConsumerOffset|RegisterOrderTopic|StatisticsMessages|ConsumeByWho|RollbackStats": NO_CODE,
    r"^(Customized|Exponential|Group)RetryPolicy$": "part of SubscriptionGroup: rules.delay",
}
"""Classes of features that Roquet does not have."""


@cache
def quoted() -> frozenset[str]:
    """Quoted names in the tests of this folder."""
    texts = (
        path.read_text("utf-8") for path in HERE.rglob("*.py") if path.name != Path(__file__).name
    )
    return frozenset(name for text in texts for name in re.findall(r'"(\w+)"', text))


def classes(file: str) -> set[str]:
    rows = map(json.loads, (VECTORS / file).read_text("utf-8").splitlines())
    return {name for row in rows if (name := row["in"].get("class"))}


@pytest.mark.parametrize("file", ["headers.jsonl", "bodies.jsonl"])
def test_every_class_that_both_sides_know_is_held_to_its_vectors(file: str) -> None:
    left = classes(file) - quoted()
    assert {name for name in left if not any(re.search(p, name) for p in NOT_HERE)} == set()


def test_every_class_without_ours_is_in_the_vectors() -> None:
    names = classes("headers.jsonl") | classes("bodies.jsonl")
    assert [p for p in NOT_HERE if not any(re.search(p, name) for name in names)] == []
