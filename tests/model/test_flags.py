import json
from pathlib import Path

import pytest

from roquet.model.flags import (
    COMPRESSION_MASK,
    LZ4,
    TRANSACTION_MASK,
    ZLIB,
    ZSTD,
    Permission,
    PullFlag,
    SysFlag,
)

CODES = Path(__file__).parent.parent / "vectors" / "codes.jsonl"

SYS_FLAGS = {
    "COMPRESSED_FLAG": SysFlag.COMPRESSED,
    "MULTI_TAGS_FLAG": SysFlag.MULTI_TAGS,
    "TRANSACTION_NOT_TYPE": SysFlag(0),
    "TRANSACTION_PREPARED_TYPE": SysFlag.TRANSACTION_PREPARED,
    "TRANSACTION_COMMIT_TYPE": SysFlag.TRANSACTION_COMMIT,
    "TRANSACTION_ROLLBACK_TYPE": SysFlag.TRANSACTION_ROLLBACK,
    "BORNHOST_V6_FLAG": SysFlag.BORN_HOST_V6,
    "STOREHOSTADDRESS_V6_FLAG": SysFlag.STORE_HOST_V6,
    "NEED_UNWRAP_FLAG": SysFlag.NEED_UNWRAP,
    "INNER_BATCH_FLAG": SysFlag.INNER_BATCH,
    "COMPRESSION_LZ4_TYPE": LZ4,
    "COMPRESSION_ZSTD_TYPE": ZSTD,
    "COMPRESSION_ZLIB_TYPE": ZLIB,
    "COMPRESSION_TYPE_COMPARATOR": COMPRESSION_MASK,
}
PULL_FLAGS = {
    "FLAG_COMMIT_OFFSET": PullFlag.COMMIT_OFFSET,
    "FLAG_SUSPEND": PullFlag.SUSPEND,
    "FLAG_SUBSCRIPTION": PullFlag.SUBSCRIPTION,
    "FLAG_CLASS_FILTER": PullFlag.CLASS_FILTER,
    "FLAG_LITE_PULL_MESSAGE": PullFlag.LITE_PULL,
}


@pytest.mark.parametrize(
    ("kind", "ours"), [("message_sys_flag", SYS_FLAGS), ("pull_sys_flag", PULL_FLAGS)]
)
def test_every_bit_is_the_genuine_one(kind: str, ours: dict[str, int]) -> None:
    rows = [json.loads(line) for line in CODES.read_text("ascii").splitlines()]
    apache = {r["in"]["name"]: r["out"]["value"] for r in rows if r["in"]["kind"] == kind}
    assert {name: int(flag) for name, flag in ours.items()} == apache


def test_the_four_states_of_a_transaction_are_told_apart_by_the_mask() -> None:
    others = SysFlag.COMPRESSED | SysFlag.BORN_HOST_V6 | LZ4
    for state in (0, SysFlag.TRANSACTION_PREPARED, SysFlag.TRANSACTION_COMMIT, 12):
        assert (others | state) & TRANSACTION_MASK == state


def test_compressions_are_told_apart_by_the_mask() -> None:
    assert {(SysFlag.COMPRESSED | kind) & COMPRESSION_MASK for kind in (LZ4, ZSTD, ZLIB)} == {
        LZ4,
        ZSTD,
        ZLIB,
    }


def test_six_is_read_and_write() -> None:
    assert Permission(6) == Permission.READ | Permission.WRITE
