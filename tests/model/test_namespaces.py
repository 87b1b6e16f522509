import json
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from roquet.model.errors import UsageError
from roquet.model.names import retry_topic
from roquet.model.namespaces import check_namespace, namespace_of, unwrap, wrap

VECTORS = Path(__file__).parents[1] / "vectors" / "namespaces.jsonl"
LINES = [json.loads(line) for line in VECTORS.read_text().splitlines()]

NAMES = st.from_regex(r"[a-zA-Z0-9_-]{1,20}", fullmatch=True)


@pytest.mark.parametrize("line", LINES, ids=str)
def test_names_are_wrapped_as_java_wraps_them(line: dict[str, Any]) -> None:
    vector, out = line["in"], line["out"]
    namespace, name = vector["namespace"], vector["name"]
    assert wrap(namespace, name) == out["wrap"]
    assert retry_topic(wrap(namespace, name)) == out["wrap_retry"] or name.startswith("%")
    assert unwrap(namespace, name) == out["without_this"]
    assert namespace_of(name) == out["namespace_of"]


@pytest.mark.parametrize("name", ["TBW102", "RMQ_SYS_TRACE_TOPIC", "rmq_sys_x", "TOOLS_CONSUMER"])
def test_the_systems_own_belong_to_all(name: str) -> None:
    assert wrap("ns", name) == name
    assert namespace_of(name) == ""


def test_another_namespace_stays_in_a_name() -> None:
    assert unwrap("ns", "other%t") == "other%t"
    assert unwrap(None, "other%t") == "other%t"
    assert namespace_of("other%t") == "other"


@pytest.mark.parametrize("namespace", ["a%b", " a", "a "])
def test_a_namespace_that_could_not_be_told_from_the_name_is_refused(namespace: str) -> None:
    with pytest.raises(UsageError, match="namespace"):
        check_namespace(namespace)
    assert check_namespace("a-b") == "a-b"


@given(NAMES, NAMES, st.sampled_from(["", "%RETRY%", "%DLQ%"]))
def test_wrapped_names_are_unwrapped_again(namespace: str, name: str, prefix: str) -> None:
    wrapped = wrap(namespace, prefix + name)
    assert unwrap(namespace, wrapped) == prefix + name
    assert wrap(namespace, wrapped) == wrapped, "once is enough"
