# Plain pulls: requests for the messages of one queue, read without a command in between.

cdef enum:
    PULL_CODE = 11              # PULL_MESSAGE
    PULLS_MAX = 32              # of one chunk: their replies are enough for one write

cdef enum:                      # its fields, in the order of _PULL_NAMES
    PULL_GROUP, PULL_TOPIC, PULL_QUEUE, PULL_OFFSET, PULL_COUNT, PULL_FLAGS, PULL_COMMIT
    PULL_SUSPEND, PULL_SUBSCRIPTION, PULL_SUB_VERSION, PULL_TYPE, PULL_BYTES, PULL_SOURCE
    PULL_TOPIC_ID, PULL_FIELDS

cdef tuple _PULL_NAMES = (
    b"consumerGroup", b"topic", b"queueId", b"queueOffset", b"maxMsgNums", b"sysFlag",
    b"commitOffset", b"suspendTimeoutMillis", b"subscription", b"subVersion", b"expressionType",
    b"maxMsgBytes", b"requestSource", b"topicId",
)
cdef const uint8_t* _PULL_NAME_AT[PULL_FIELDS]
cdef Py_ssize_t _PULL_NAME_SIZES[PULL_FIELDS]
for _place in range(PULL_FIELDS):           # every field is compared with several of them
    _PULL_NAME_AT[_place] = chars(_PULL_NAMES[_place])
    _PULL_NAME_SIZES[_place] = PyBytes_GET_SIZE(_PULL_NAMES[_place])

cdef object _PlainPull = None


def plain_pulls(bytes chunk, Py_ssize_t size_max, dict keys or None):
    """The plain pulls with which a chunk begins, up to the first frame that is none.

    With `keys` (not None) one that none of them has signed is none.
    """
    global _PlainPull
    cdef const uint8_t* start = chars(chunk)
    cdef const uint8_t* end = start + PyBytes_GET_SIZE(chunk)
    cdef const uint8_t* at = start
    cdef Py_ssize_t size
    cdef list pulls = []
    if _PlainPull is None:
        from roquet.wire.plain_pull import PlainPull as _PlainPull  # it imports this module
    while end - at >= 8 and len(pulls) < PULLS_MAX:
        size = load4(at)
        if not 4 <= size <= size_max or size > end - at - 4:
            break
        pull = plain_pull_at(at + 4, size, at + 4 + size - start, keys)
        if pull is None:
            break
        pulls.append(pull)
        at += 4 + size
    return pulls


cdef object plain_pull_at(const uint8_t* at, Py_ssize_t size, Py_ssize_t frame_end, dict keys):
    """The plain pull of a frame, given without its length word; None for another request."""
    cdef PlainHead head
    cdef SignedField[SIGNED_MAX] found
    if plain_code(at, size) != PULL_CODE:
        return None
    count = plain_fields(found, at, size, &head)
    if count < 0 or head.end != at + size:  # a body names further queues
        return None
    return plain_pull(found, count, &head, frame_end, keys)


cdef object plain_pull(
    SignedField* found, Py_ssize_t count, PlainHead* head, Py_ssize_t frame_end, dict keys,
):
    """The plain pull with some fields, whose values are as clients write them; None for others."""
    cdef SignedField* named[PULL_FIELDS]
    cdef int64_t queue_id, offset = 0, messages, flags, commit_offset = 0, wait_ms = 0
    cdef int64_t sub_version = 0, size = 0, unused = 0
    if not sort_pull_fields(found, count, named) or named[PULL_TOPIC_ID] != NULL:
        return None
    if named[PULL_GROUP] == NULL or named[PULL_TOPIC] == NULL:
        return None
    if not (
        read_int(named[PULL_QUEUE], &queue_id)
        and read_long(named[PULL_OFFSET], &offset)
        and read_int(named[PULL_COUNT], &messages)
        and read_int(named[PULL_FLAGS], &flags)
        and read_long(named[PULL_COMMIT], &commit_offset)
        and read_long(named[PULL_SUSPEND], &wait_ms)
        and read_long(named[PULL_SUB_VERSION], &sub_version)
        and may_read_int(named[PULL_BYTES], &size)
        and may_read_int(named[PULL_SOURCE], &unused)
    ):
        return None
    key = None
    if keys is not None:
        signer = signer_of(found, count, Span(head.end, 0), keys)
        if signer is None or signer is NotImplemented:
            return None
        key = keys[signer]
    return _PlainPull(
        head.opaque, head.form, <object>head.language, head.version,
        text_of(named[PULL_GROUP]), text_of(named[PULL_TOPIC]),
        queue_id, offset, messages, flags, commit_offset,
        None if named[PULL_SUBSCRIPTION] == NULL else text_of(named[PULL_SUBSCRIPTION]),
        sub_version, None if named[PULL_TYPE] == NULL else text_of(named[PULL_TYPE]),
        None if named[PULL_BYTES] == NULL else size,
        key, frame_end,
    )


cdef bint sort_pull_fields(
    SignedField* found, Py_ssize_t count, SignedField** named
) noexcept nogil:
    """Put fields at the places of their names, others nowhere; False for a name given twice."""
    cdef SignedField* field
    cdef Py_ssize_t index, place
    memset(named, 0, PULL_FIELDS * sizeof(named[0]))
    for index in range(count):
        field = &found[index]
        for place in range(PULL_FIELDS):
            if field.name_size != _PULL_NAME_SIZES[place]:
                continue
            if memcmp(field.name, _PULL_NAME_AT[place], field.name_size) == 0:
                if named[place] != NULL:
                    return False
                named[place] = field
                break
    return True


cdef bint read_long(SignedField* field, int64_t* number) noexcept nogil:
    """Read a field that holds a number of up to 18 digits: Java commits -1 before its first offset."""
    cdef SignedField digits
    number[0] = 0
    if field == NULL or field.size != field.value_size or field.size == 0:
        return False
    if field.value[0] != c"-":
        return read_born(field, number)
    digits = field[0]
    digits.value += 1
    digits.size -= 1
    digits.value_size -= 1
    if not read_born(&digits, number):
        return False
    number[0] = -number[0]
    return True


def found_reply(
    int32_t opaque, serialize_type, int64_t next_offset, int64_t min_offset, int64_t max_offset,
    body,
):
    """The frame of the reply with messages; NotImplemented for a body that is not contiguous."""
    cdef uint8_t[HEADER_BUFFER] header
    cdef Out out
    cdef bint is_json = serialize_type == 0
    out.at, out.end = header, header + HEADER_BUFFER
    if not (
        begin_reply(&out, opaque, b"FOUND", is_json)
        and put_number_field(&out, b"suggestWhichBrokerId", 0, is_json)
        and put_number_field(&out, b"nextBeginOffset", next_offset, is_json)
        and put_number_field(&out, b"minOffset", min_offset, is_json)
        and put_number_field(&out, b"maxOffset", max_offset, is_json)
    ):
        return NotImplemented
    return end_reply(&out, header, b"FOUND", is_json, body)
