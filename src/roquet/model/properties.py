"""Names of message properties, and the reserved ones that users may not set."""

from typing import Final

KEYS: Final = "KEYS"
TAGS: Final = "TAGS"
WAIT: Final = "WAIT"
DELAY: Final = "DELAY"
RETRY_TOPIC: Final = "RETRY_TOPIC"
REAL_TOPIC: Final = "REAL_TOPIC"
REAL_QUEUE_ID: Final = "REAL_QID"
TRANSACTION_PREPARED: Final = "TRAN_MSG"
PRODUCER_GROUP: Final = "PGROUP"
MIN_OFFSET: Final = "MIN_OFFSET"
MAX_OFFSET: Final = "MAX_OFFSET"
BUYER_ID: Final = "BUYER_ID"
ORIGIN_MESSAGE_ID: Final = "ORIGIN_MESSAGE_ID"
TRANSFER_FLAG: Final = "TRANSFER_FLAG"
CORRECTION_FLAG: Final = "CORRECTION_FLAG"
MQ2_FLAG: Final = "MQ2_FLAG"
RECONSUME_TIME: Final = "RECONSUME_TIME"
MSG_REGION: Final = "MSG_REGION"
TRACE_ON: Final = "TRACE_ON"
UNIQUE_KEY: Final = "UNIQ_KEY"
EXTEND_UNIQUE_INFO: Final = "EXTEND_UNIQ_INFO"
MAX_RECONSUME_TIMES: Final = "MAX_RECONSUME_TIMES"
CONSUME_START_TIME: Final = "CONSUME_START_TIME"
INNER_NUM: Final = "INNER_NUM"
INNER_BASE: Final = "INNER_BASE"
CHECK_IMMUNITY_TIME: Final = "CHECK_IMMUNITY_TIME_IN_SECONDS"
TRANSACTION_PREPARED_QUEUE_OFFSET: Final = "TRAN_PREPARED_QUEUE_OFFSET"
TRANSACTION_ID: Final = "__transactionId__"
TRANSACTION_CHECK_TIMES: Final = "TRANSACTION_CHECK_TIMES"
INSTANCE_ID: Final = "INSTANCE_ID"
CORRELATION_ID: Final = "CORRELATION_ID"
REPLY_TO_CLIENT: Final = "REPLY_TO_CLIENT"
TTL: Final = "TTL"
CLUSTER: Final = "CLUSTER"
MESSAGE_TYPE: Final = "MSG_TYPE"
POP_CK: Final = "POP_CK"
FIRST_POP_TIME: Final = "1ST_POP_TIME"
SHARDING_KEY: Final = "__SHARDINGKEY"
TIMER_DELAY_SEC: Final = "TIMER_DELAY_SEC"
TIMER_DELIVER_MS: Final = "TIMER_DELIVER_MS"
TIMER_DELAY_MS: Final = "TIMER_DELAY_MS"
TIMER_OUT_MS: Final = "TIMER_OUT_MS"
CRC32: Final = "__CRC32#"
DLQ_ORIGIN_TOPIC: Final = "DLQ_ORIGIN_TOPIC"
DLQ_ORIGIN_MESSAGE_ID: Final = "DLQ_ORIGIN_MESSAGE_ID"
ORIGIN_GROUP: Final = "ORIGIN_GROUP"
TRANSACTION_OFFSET: Final = "TRANS_OFFSET"
BORN_HOST: Final = "__BORNHOST"
BORN_TIMESTAMP: Final = "BORN_TIMESTAMP"
DUP_INFO: Final = "DUP_INFO"
POP_CK_OFFSET: Final = "POP_CK_OFFSET"
TIMER_DELAY_LEVEL: Final = "TIMER_DELAY_LEVEL"
TIMER_ENQUEUE_MS: Final = "TIMER_ENQUEUE_MS"
TIMER_DEQUEUE_MS: Final = "TIMER_DEQUEUE_MS"
TIMER_ROLL_TIMES: Final = "TIMER_ROLL_TIMES"
TIMER_DELETE_UNIQUE_KEY: Final = "TIMER_DEL_UNIQKEY"
ARRIVE_TIME: Final = "ARRIVE_TIME"
PUSH_REPLY_TIME: Final = "PUSH_REPLY_TIME"
PRIORITY: Final = "_SYS_MSG_PRIORITY_"
TRACE_CONTEXT: Final = "TRACE_CONTEXT"

SINK_ROW: Final = "ROQUET_ROW"
"""Row and query that a message was made from: set by our Spark sink, used by readers to drop
duplicates. Not a system property: brokers and other clients see it as a user's."""

REPLAYED_FROM: Final = "ROQUET_FROM"
"""Source of a replayed message: TOPIC/BROKER/QUEUE/OFFSET. A repeated replay uses it to find
messages that are there already. Not a system property either."""

MIRRORED_FROM: Final = "ROQUET_MIRRORED"
"""Source of a message that `roquet mirror` copied from another cluster, as
CLUSTER/TOPIC/BROKER/QUEUE/OFFSET/ID, with percent and slash of a part as %25 and %2F. Not a
system property either."""

BORN_MS: Final = "ROQUET_BORN_MS"
"""When the original of a mirrored message was born, in ms since 1970: a batch has one time for all
of its messages."""

BODY_TYPE: Final = "body_type"
"""Name of the type of the value that a producer's `encode` made a body of. A user's property: his
own value is kept."""

DEAD_LETTER_REASON: Final = "DLQ_REASON"
"""Why a consumer gave a message up, in the dead letter. Written by our consumers; to brokers and
other clients a user's property."""

SET_ASIDE_SERVICE: Final = "SET_ASIDE_SERVICE"
SET_ASIDE_REASON: Final = "SET_ASIDE_REASON"
SET_ASIDE_PLACE: Final = "SET_ASIDE_PLACE"
"""Of a message that was set aside: the service that could not handle it, the reason, and the
location of the original, TOPIC/QUEUE/OFFSET/POSITION. Not Apache's; only the broker writes them."""

SET_ASIDE_GOAL: Final = "SET_ASIDE_GOAL"
"""Destination of the next try: QUEUE/TOPIC. Absent if that is where the message came from."""

KEYS_SEPARATOR: Final = " "
"""Separates the keys of one message: U+0020 alone. Other blanks are part of a key."""

NAME_VALUE_SEPARATOR: Final = "\x01"
PROPERTY_SEPARATOR: Final = "\x02"

RESERVED: Final = frozenset(
    {
        KEYS, TAGS, WAIT, DELAY, RETRY_TOPIC, REAL_TOPIC, REAL_QUEUE_ID, TRANSACTION_PREPARED,
        PRODUCER_GROUP, MIN_OFFSET, MAX_OFFSET, BUYER_ID, ORIGIN_MESSAGE_ID, TRANSFER_FLAG,
        CORRECTION_FLAG, MQ2_FLAG, RECONSUME_TIME, MSG_REGION, TRACE_ON, UNIQUE_KEY,
        EXTEND_UNIQUE_INFO, MAX_RECONSUME_TIMES, CONSUME_START_TIME, INNER_NUM, INNER_BASE,
        CHECK_IMMUNITY_TIME, TRANSACTION_PREPARED_QUEUE_OFFSET, TRANSACTION_ID,
        TRANSACTION_CHECK_TIMES, INSTANCE_ID, CORRELATION_ID, REPLY_TO_CLIENT, TTL, CLUSTER,
        MESSAGE_TYPE, POP_CK, FIRST_POP_TIME, SHARDING_KEY, TIMER_DELAY_SEC, TIMER_DELIVER_MS,
        TIMER_DELAY_MS, TIMER_OUT_MS, CRC32, DLQ_ORIGIN_TOPIC, DLQ_ORIGIN_MESSAGE_ID,
        ORIGIN_GROUP, TRANSACTION_OFFSET, BORN_HOST, BORN_TIMESTAMP, DUP_INFO, POP_CK_OFFSET,
        TIMER_DELAY_LEVEL, TIMER_ENQUEUE_MS, TIMER_DEQUEUE_MS, TIMER_ROLL_TIMES,
        TIMER_DELETE_UNIQUE_KEY, ARRIVE_TIME, PUSH_REPLY_TIME,
        PRIORITY, TRACE_CONTEXT,
    }
)  # fmt: skip
"""Names of the system's own properties: users may not set them."""

PROPERTIES_SIZE_MAX: Final = 32_767
"""Bytes of a message's encoded properties: the record has a signed 16-bit number for the length."""


def split_keys(text: str) -> tuple[str, ...]:
    """The keys in the text of the property KEYS; empty ones are none, as in brokers' key index."""
    return tuple(filter(None, text.split(KEYS_SEPARATOR)))
