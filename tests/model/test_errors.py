import copy
import inspect
import pickle

import pytest

from roquet.model import errors
from roquet.model.errors import (
    CallError,
    CallRefused,
    CallTimeout,
    ConnectFailed,
    ConnectionLost,
    RoquetError,
    StoreError,
    StoreFull,
    StoreLocked,
)


def test_one_except_catches_every_error_of_ours() -> None:
    ours = [kind for _, kind in inspect.getmembers(errors, inspect.isclass)]
    assert len(ours) > 10
    assert [kind for kind in ours if not issubclass(kind, RoquetError)] == []


def test_a_call_that_found_no_server_is_a_definite_failure() -> None:
    assert ConnectFailed("nobody listens at 10.0.0.1:10911").definite


@pytest.mark.parametrize("kind", [ConnectionLost, CallTimeout])
def test_a_call_without_an_answer_may_have_been_carried_out(
    kind: type[ConnectionLost | CallTimeout],
) -> None:
    error: CallError = kind("no answer")
    assert not error.definite
    assert str(error) == "no answer"


def test_a_refusal_names_its_code_and_remark() -> None:
    error = CallRefused(17, "topic [Orders] does not exist")
    assert (error.code, error.remark, error.definite) == (17, "topic [Orders] does not exist", True)
    assert str(error) == "code 17: topic [Orders] does not exist"


def test_a_refusal_without_a_remark_is_still_a_sentence() -> None:
    assert str(CallRefused(1)) == "code 1: refused"


def test_a_refusal_can_leave_open_whether_it_happened() -> None:
    assert not CallRefused(1, "system busy", definite=False).definite


def test_a_full_disk_and_a_held_directory_are_both_the_disks_fault() -> None:
    assert issubclass(StoreFull, StoreError)
    assert issubclass(StoreLocked, StoreError)


def test_errors_keep_their_fields_on_the_way_to_another_process() -> None:
    refused = errors.CallRefused(17, "no such\ttopic", definite=False)
    again = pickle.loads(pickle.dumps(refused))
    assert (type(again), str(again)) == (errors.CallRefused, str(refused))
    assert (again.code, again.remark, again.definite) == (17, "no such\ttopic", False)
    assert copy.copy(errors.StoreFull("full")).args == ("full",)
