import pytest

from roquet.controller.request_fields import broker_ids, check_broker_id, check_cluster, check_texts
from roquet.model.errors import CallRefused


@pytest.mark.parametrize("text", ["", "x" * 256, "a\nb", "\0"])
def test_empty_huge_and_unprintable_texts_are_refused_and_named(text: str) -> None:
    with pytest.raises(CallRefused, match=r"brokerName: .* is not a text of 1 to 255") as refused:
        check_texts(clusterName="C", brokerName=text)
    assert refused.value.code == 2005
    assert len(str(refused.value)) < 200


def test_usual_texts_pass() -> None:
    check_texts(brokerName="brücke-a", registerCheckCode="127.0.0.1:1;17")


def test_a_cluster_may_be_left_out() -> None:
    check_cluster("")
    check_cluster("C")
    with pytest.raises(CallRefused, match="clusterName"):
        check_cluster("x" * 256)


@pytest.mark.parametrize("broker_id", [0, -1, -(2**63)])
def test_ids_below_the_first_are_refused(broker_id: int) -> None:
    with pytest.raises(CallRefused, match=f"broker id {broker_id}"):
        check_broker_id(broker_id)


def test_a_list_of_ids_is_separated_by_semicolons() -> None:
    assert broker_ids("1;2; 3;") == {1, 2, 3}
    assert broker_ids("") == frozenset()


@pytest.mark.parametrize("text", ["1,2", "a", "-1", "9" * 30, "²"])
def test_a_list_of_anything_else_is_refused(text: str) -> None:
    with pytest.raises(CallRefused, match="expected numbers separated by semicolons"):
        broker_ids(text)
