# Plain sends: requests that store one ordinary message, or a batch, read without a command in
# between, written into the log's map and answered.

cdef enum:
    SEND_CODE = 310             # SEND_MESSAGE_V2, whose fields have names of one letter
    BATCH_CODE = 320            # SEND_BATCH_MESSAGE, which has the same ones
    BORN_DIGITS_MAX = 18
    SENDS_MAX = 100             # of one chunk: see wire.plain_send
    TRANSACTION_BITS = 12       # of the system flag: the message belongs to a transaction
    SHARED_MAX = 8              # properties of a whole batch

cdef enum:                      # its fields, from the letter a on
    GROUP, TOPIC, DEFAULT_TOPIC, QUEUES, QUEUE, SYS_FLAG, BORN, MESSAGE_FLAG, PROPERTIES, TRIES
    UNIT_MODE, TRIES_MAX, BATCH, BROKER_NAME, SEND_LETTERS

cdef int _PYTHON = int(Language.PYTHON)
cdef int _VERSION = codes.VERSION


@cython.final
@cython.freelist(8)
@cython.no_gc                   # nothing that it holds leads back to it
cdef class PlainSend:
    """A request as `wire.plain_send.PlainSend`; its body stays in the chunk."""

    cdef bytes chunk
    cdef readonly int code
    cdef readonly bint is_batch
    cdef readonly int32_t opaque
    cdef readonly int serialize_type
    cdef readonly object language
    cdef readonly int version
    cdef readonly str topic
    cdef readonly int32_t queue_id
    cdef readonly int32_t sys_flag
    cdef readonly int64_t born_timestamp
    cdef readonly int32_t flag
    cdef readonly int32_t reconsume_times
    cdef readonly bytes properties
    cdef readonly int64_t tag_code
    cdef readonly object key
    cdef Span unique                            # the unique key, in the properties
    cdef const uint8_t* body_at                 # in the chunk
    cdef readonly Py_ssize_t body_size
    cdef readonly Py_ssize_t end

    @property
    def unique_key(self):
        return PyUnicode_DecodeASCII(<char*>self.unique.at, self.unique.size, NULL)

    @property
    def body(self):
        return PyBytes_FromStringAndSize(<char*>self.body_at, self.body_size)


cdef struct PlainHead:
    int form                                    # 0 is JSON, 1 compact
    int64_t opaque
    int64_t version
    void* language                              # of this module's: nobody counts it here
    const uint8_t* end


cdef int plain_code(const uint8_t* at, Py_ssize_t size) noexcept nogil:
    """The code of a request's frame as clients write it, in front of all else; 0 for another."""
    cdef int64_t code = 0
    cdef const uint8_t* end = at + 4 + (load4(at) & 0xFFFFFF)
    if end > at + size:
        return 0
    if at[0] == 1 and end - at >= 4 + COMPACT_FIXED:
        return at[4] << 8 | at[5]
    if at[0] != 0 or end - at < 12 or memcmp(at + 4, b'{"code":', 8) != 0:
        return 0
    return <int>code if read_header_number(at + 12, end, &code) != NULL else 0


cdef Py_ssize_t plain_fields(
    SignedField* found, const uint8_t* at, Py_ssize_t size, PlainHead* plain
) except? -1:
    """Read the header of a frame with a code and its fields; -1 for what is no ordinary request."""
    cdef JsonHead head
    cdef Span fields
    plain.form = at[0]
    plain.end = at + 4 + (load4(at) & 0xFFFFFF)
    if plain.form == 0:
        if not read_json_head(at + 4, plain.end, &head) or head.numbers[FLAG] != 0:
            return -1
        if head.seen & 1 << REMARK or not head.seen & 1 << FIELDS:
            return -1
        plain.opaque, plain.version = head.numbers[OPAQUE], head.numbers[VERSION]
        language = language_of(&head)
        plain.language = <void*>language
        fields = head.texts[2]
        return json_fields(found, fields.at, fields.at + fields.size)
    if load4(at + 13) != 0 or load4(at + 17) != 0:
        return -1
    fields = Span(at + 4 + COMPACT_FIXED, plain.end - at - 4 - COMPACT_FIXED)
    if load4(at + 21) != <uint64_t>fields.size:
        return -1
    plain.opaque, plain.version = <int32_t>load4(at + 9), <int16_t>(at[7] << 8 | at[8])
    language = _LANGUAGE_BY_CODE[at[6]] if at[6] < len(_LANGUAGE_BY_CODE) else _OTHER
    plain.language = <void*>language
    return pair_fields(found, fields.at, plain.end)


def plain_sends(bytes chunk, Py_ssize_t size_max, dict keys or None):
    """The plain sends with which a chunk begins, up to the first frame that is none.

    With `keys` (not None) one that none of them has signed is none.
    """
    cdef const uint8_t* start = chars(chunk)
    cdef const uint8_t* end = start + PyBytes_GET_SIZE(chunk)
    cdef const uint8_t* at = start
    cdef Py_ssize_t size
    cdef list sends = []
    cdef PlainSend send
    while end - at >= 8 and len(sends) < SENDS_MAX:
        size = load4(at)
        if not 4 <= size <= size_max or size > end - at - 4:
            break
        send = plain_send_at(at + 4, size, keys)
        if send is None:
            break
        send.chunk = chunk
        send.end = at + 4 + size - start
        sends.append(send)
        at += 4 + size
    return sends


cdef PlainSend plain_send_at(const uint8_t* at, Py_ssize_t size, dict keys):
    """The plain send of a frame, given without its length word; None for another request."""
    cdef PlainHead head
    cdef SignedField[SIGNED_MAX] found
    cdef int code = plain_code(at, size)
    if code != SEND_CODE and code != BATCH_CODE:
        return None
    count = plain_fields(found, at, size, &head)
    return None if count < 0 else plain_send(found, count, code, &head, at + size, keys)


cdef PlainSend plain_send(
    SignedField* found, Py_ssize_t count, int code, PlainHead* head, const uint8_t* stop, dict keys,
):
    """The plain send with some fields, whose values are as clients write them; None for others."""
    cdef SignedField* by_letter[SEND_LETTERS]
    cdef SignedField* field
    cdef Facts facts
    cdef int64_t queue_id, born_ms = 0, unused = 0, sys_flag = 0, flag = 0, reconsume_times = 0
    cdef Py_ssize_t index
    cdef bytes text = b""
    cdef bint is_batch
    cdef str topic
    cdef PlainSend send
    memset(by_letter, 0, sizeof(by_letter))
    for index in range(count):
        field = &found[index]
        if field.name_size != 1 or not c"a" <= field.name[0] < c"a" + SEND_LETTERS:
            continue
        if by_letter[field.name[0] - c"a"] != NULL:
            return None
        by_letter[field.name[0] - c"a"] = field
    if by_letter[GROUP] == NULL or by_letter[TOPIC] == NULL:
        return None
    if not (
        read_int(by_letter[QUEUE], &queue_id)
        and read_born(by_letter[BORN], &born_ms)
        and may_read_int(by_letter[QUEUES], &unused)
        and may_read_int(by_letter[SYS_FLAG], &sys_flag)
        and may_read_int(by_letter[MESSAGE_FLAG], &flag)
        and may_read_int(by_letter[TRIES], &reconsume_times)
        and may_read_int(by_letter[TRIES_MAX], &unused)
        and (is_value(by_letter[UNIT_MODE], b"false") or is_value(by_letter[UNIT_MODE], b"true"))
    ):
        return None
    is_batch = by_letter[BATCH] != NULL and is_value(by_letter[BATCH], b"true")
    if not is_batch and (code == BATCH_CODE or not is_value(by_letter[BATCH], b"false")):
        return None
    field = by_letter[PROPERTIES]
    if field != NULL:
        text = value_of(field)
    if is_batch:
        text = shared_properties(text)
        if text is None:
            return None
        facts.text = facts.key = facts.tag = chars(text)
        facts.key_size = facts.tag_size = 0
    elif not read_facts(chars(text), PyBytes_GET_SIZE(text), &facts):
        return None
    if not is_ascii(facts.key, facts.key_size):
        return None
    topic = text_of(by_letter[TOPIC])
    if not topic or topic[0] == u"%" or stop == head.end or sys_flag & TRANSACTION_BITS:
        return None
    send = PlainSend.__new__(PlainSend)
    send.code, send.is_batch = code, is_batch
    send.opaque, send.serialize_type = head.opaque, head.form
    send.language, send.version = <object>head.language, head.version
    send.topic, send.queue_id, send.sys_flag, send.flag = topic, queue_id, sys_flag, flag
    send.born_timestamp, send.reconsume_times = born_ms, reconsume_times
    send.properties, send.tag_code = text, tag_code_of(&facts)
    send.unique = Span(facts.key, facts.key_size)
    send.body_at, send.body_size = head.end, stop - head.end
    if keys is not None:
        signer = signer_of(found, count, Span(head.end, stop - head.end), keys)
        if signer is None or signer is NotImplemented:
            return None
        send.key = keys[signer]
    return send


cdef bytes shared_properties(bytes text):
    """The properties of a whole batch without its unique key; None for odd ones."""
    cdef const uint8_t* at = chars(text)
    cdef const uint8_t* end = at + PyBytes_GET_SIZE(text)
    cdef const uint8_t* middle
    cdef const uint8_t* stop
    cdef Span[SHARED_MAX] known
    cdef Py_ssize_t count = 0, index, size
    cdef bytes shared = b""
    if not is_ascii(at, end - at):
        return None
    while at < end:
        stop = <const uint8_t*>memchr(at, 2, end - at)
        if stop == NULL or count == SHARED_MAX:
            return None
        middle = <const uint8_t*>memchr(at, 1, stop - at)
        if middle == NULL or middle == at or middle + 1 == stop:
            return None
        if memchr(middle + 1, 1, stop - middle - 1) != NULL:
            return None
        size = middle - at
        for index in range(count):
            if known[index].size == size and memcmp(known[index].at, at, size) == 0:
                return None                 # of two with one name the last counts
        known[count] = Span(at, size)
        count += 1
        if not is_name(at, size, _UNIQUE_KEY):
            shared += PyBytes_FromStringAndSize(<char*>at, stop + 1 - at)
        at = stop + 1
    return shared


cdef bint read_int(SignedField* field, int64_t* number) noexcept nogil:
    """Read a field that holds a number of 32 bits as clients write it."""
    cdef const uint8_t* end
    if field == NULL or field.size != field.value_size:
        return False
    end = field.value + field.size
    return read_header_number(field.value, end, number) == end


cdef bint may_read_int(SignedField* field, int64_t* number) noexcept nogil:
    """Read such a field if it is there."""
    return field == NULL or read_int(field, number)


cdef bint read_born(SignedField* field, int64_t* number) noexcept nogil:
    """Read a field that holds a time in ms after 1970."""
    cdef Py_ssize_t index
    if field == NULL or field.size != field.value_size or field.size > BORN_DIGITS_MAX:
        return False
    if field.size == 0 or (field.value[0] == c"0" and field.size > 1):
        return False
    for index in range(field.size):
        if not c"0" <= field.value[index] <= c"9":
            return False
        number[0] = 10 * number[0] + field.value[index] - c"0"
    return True


cdef bint is_value(SignedField* field, bytes wanted) noexcept:
    """Whether a field has a value, or is not there."""
    return field == NULL or is_name(field.value, field.value_size, wanted)


# -- the log -------------------------------------------------------------------------------------

def put_send(
    send, records, Py_ssize_t at, Py_ssize_t room, entries, Py_ssize_t entry_at,
    int64_t queue_offset, int64_t position, int32_t sys_flag, bytes born_host, int64_t stored_ms,
    bytes store_host, bytes topic, bytes tail,
):
    """Write the record of a plain send and its queue entry into two maps: both or, giving 0, none."""
    cdef Py_buffer log
    cdef Py_buffer queue
    cdef Fields fields
    cdef PlainSend given
    cdef Py_ssize_t total
    if type(send) is not PlainSend or (<PlainSend>send).chunk is None:
        return NotImplemented
    given = <PlainSend>send
    if given.is_batch:
        return NotImplemented
    fields = fields_of(
        given.queue_id, sys_flag, given.born_timestamp, born_host, stored_ms, store_host,
        given.reconsume_times, 0, topic,
    )
    if not fits(given.properties, &fields):
        return NotImplemented
    total = record_size(tail, given.properties, &fields) + given.body_size
    if total > room or text_size_of(given, tail) > PROPERTIES_SIZE_MAX:
        return 0
    PyObject_GetBuffer(records, &log, PyBUF_WRITABLE)
    try:
        PyObject_GetBuffer(entries, &queue, PyBUF_WRITABLE)
        try:
            if not has_room(&log, at, total) or not has_room(&queue, entry_at, ENTRY_SIZE):
                return NotImplemented
            write_send(<uint8_t*>log.buf + at, &fields, total, queue_offset, position, given, tail)
            write_entry(<uint8_t*>queue.buf + entry_at, position, total, given.tag_code)
        finally:
            PyBuffer_Release(&queue)
    finally:
        PyBuffer_Release(&log)
    return total


cdef inline Py_ssize_t text_size_of(PlainSend send, bytes tail) noexcept:
    """Bytes of the properties that are stored."""
    return PyBytes_GET_SIZE(send.properties) + PyBytes_GET_SIZE(tail)


cdef bint has_room(Py_buffer* view, Py_ssize_t at, Py_ssize_t size) noexcept:
    """Whether bytes lie inside of a view."""
    return 0 <= at <= view.len and size <= view.len - at


cdef void write_send(
    uint8_t* at, Fields* fields, Py_ssize_t total, int64_t queue_offset, int64_t position,
    PlainSend send, bytes tail,
) noexcept:
    """Write the record of a plain send."""
    cdef Py_ssize_t size = PyBytes_GET_SIZE(send.properties)
    cdef uint32_t crc = crc_of(send.body_at, send.body_size)
    at = write_head(
        at, fields, total, crc, send.flag, queue_offset, position, send.body_size
    )
    memcpy(at, send.body_at, send.body_size)
    at = write_topic(at + send.body_size, fields)
    store2(at, <uint32_t>text_size_of(send, tail))
    memcpy(at + 2, chars(send.properties), size)
    memcpy(at + 2 + size, chars(tail), PyBytes_GET_SIZE(tail))


cdef void write_entry(uint8_t* at, int64_t position, Py_ssize_t size, int64_t tag_code) noexcept:
    """Write a queue entry."""
    store8(at, position)
    store4(at + 8, <uint32_t>size)
    store8(at + 12, tag_code)


# -- replies -------------------------------------------------------------------------------------

def stored_reply(
    send, bytes store_host, int64_t position, int64_t queue_offset, str region, trace_on,
):
    """The frame of the reply to a stored message; NotImplemented for texts that need escapes."""
    cdef PlainSend given
    cdef uint8_t[64] message_id
    if PyBytes_GET_SIZE(store_host) > 20 or type(send) is not PlainSend:
        return NotImplemented
    given = <PlainSend>send
    if given.chunk is None:
        return NotImplemented
    write_message_id(message_id, store_host, position)
    return reply_frame(
        given.opaque, given.serialize_type == 0, message_id,
        2 * PyBytes_GET_SIZE(store_host) + 16, given.queue_id, queue_offset, given.unique, region,
        trace_on,
    )


def batch_reply(
    int32_t opaque, serialize_type, bytes store_host, bytes entries, int32_t queue_id,
    int64_t queue_offset, str region, trace_on,
):
    """The frame of the reply to a stored batch; NotImplemented for one of many messages."""
    cdef uint8_t[HEADER_BUFFER] ids
    cdef uint8_t* at = ids
    cdef Py_ssize_t count = PyBytes_GET_SIZE(entries) // ENTRY_SIZE, index
    cdef Py_ssize_t host_size = PyBytes_GET_SIZE(store_host)
    if host_size > 20 or count == 0 or count > HEADER_BUFFER // (2 * host_size + 17):
        return NotImplemented
    for index in range(count):
        at = write_message_id(at, store_host, <int64_t>load8(chars(entries) + ENTRY_SIZE * index))
        at[0] = c","
        at += 1
    return reply_frame(
        opaque, serialize_type == 0, ids, at - ids - 1, queue_id, queue_offset,
        Span(NULL, 0), region, trace_on,
    )


cdef uint8_t* write_message_id(uint8_t* at, bytes store_host, int64_t position) noexcept:
    """Write the id of the message at a position; gives where it ends."""
    cdef uint8_t[8] place
    store8(place, position)
    return write_hex(write_hex(at, chars(store_host), PyBytes_GET_SIZE(store_host)), place, 8)


cdef object reply_frame(
    int32_t opaque, bint is_json, const uint8_t* ids, Py_ssize_t ids_size, int32_t queue_id,
    int64_t queue_offset, Span key, str region, trace_on,
):
    """The frame of a reply; `key` is NULL for a batch."""
    cdef uint8_t[HEADER_BUFFER] header
    cdef Out out
    cdef const char* region_text
    cdef Py_ssize_t region_size
    try:
        region_text = PyUnicode_AsUTF8AndSize(region, &region_size)
    except UnicodeEncodeError:
        return NotImplemented
    out.at, out.end = header, header + HEADER_BUFFER
    if not (
        begin_reply(&out, opaque, b"", is_json)
        and put_plain_field(&out, b"msgId", ids, ids_size, is_json)
        and put_number_field(&out, b"queueId", queue_id, is_json)
        and put_number_field(&out, b"queueOffset", queue_offset, is_json)
        and put_field(&out, b"MSG_REGION", region_text, region_size, is_json)
        and put_field(&out, b"TRACE_ON", b"true" if trace_on else b"false", 4 + (not trace_on), is_json)
        and (key.at == NULL or put_field(&out, b"transactionId", key.at, key.size, is_json))
    ):
        return NotImplemented
    return end_reply(&out, header, b"", is_json, b"")


cdef bint begin_reply(Out* out, int32_t opaque, bytes remark, bint is_json) noexcept:
    """Write the header of a reply up to its fields; an empty remark is none."""
    cdef uint8_t* header = out.at
    cdef Py_ssize_t size = PyBytes_GET_SIZE(remark)
    if is_json:
        return (
            put(out, b'{"code":0,"flag":1,"opaque":', 28) and put_number(out, opaque)
            and put(out, b',"language":"PYTHON","version":', 31) and put_number(out, _VERSION)
            and (
                not size or put(out, b',"remark":"', 11) and put(out, chars(remark), size)
                and put(out, b'"', 1)
            )
            and put(out, b',"extFields":{', 14)
        )
    memset(header, 0, COMPACT_FIXED)
    header[2] = <uint8_t>_PYTHON
    store2(header + 3, <uint32_t>_VERSION)
    store4(header + 5, <uint32_t>opaque)
    store4(header + 9, 1)
    store4(header + 13, <uint32_t>size)
    memcpy(header + 17, chars(remark), size)
    out.at += COMPACT_FIXED + size          # the length of the fields comes at the end
    return True


cdef object end_reply(Out* out, uint8_t* header, bytes remark, bint is_json, object body):
    """The frame of a reply whose fields are written; NotImplemented where there is no more room."""
    cdef Py_ssize_t fields_at = COMPACT_FIXED + PyBytes_GET_SIZE(remark)
    if is_json:
        (out.at - 1)[0] = c"}"                # behind the last field: no comma
        if not put(out, b"}", 1):
            return NotImplemented
    else:
        store4(header + fields_at - 4, <uint32_t>(out.at - header - fields_at))
    return whole_frame(header, out.at - header, is_json, body)


cdef bint put_field(
    Out* out, bytes name, const void* text, Py_ssize_t size, bint is_json
) noexcept:
    """Append a name and a text; behind it a comma in JSON."""
    if not is_json:
        return put_plain_field(out, name, text, size, False)
    return (
        put(out, b'"', 1) and put(out, chars(name), PyBytes_GET_SIZE(name)) and put(out, b'":', 2)
        and put_quoted(out, <const uint8_t*>text, size, 255) and put(out, b",", 1)
    )


cdef bint put_plain_field(
    Out* out, bytes name, const void* text, Py_ssize_t size, bint is_json
) noexcept:
    """The same of a text without anything that JSON would escape."""
    cdef Py_ssize_t name_size = PyBytes_GET_SIZE(name)
    if is_json:
        return (
            put(out, b'"', 1) and put(out, chars(name), name_size) and put(out, b'":"', 3)
            and put(out, text, size) and put(out, b'",', 2)
        )
    if out.end - out.at < 6 + name_size:
        return False
    store2(out.at, <uint32_t>name_size)
    memcpy(out.at + 2, chars(name), name_size)
    store4(out.at + 2 + name_size, <uint32_t>size)
    out.at += 6 + name_size
    return put(out, text, size)


cdef bint put_number_field(Out* out, bytes name, int64_t number, bint is_json) noexcept:
    cdef uint8_t[20] digits
    cdef Out text
    text.at, text.end = digits, digits + 20
    put_number(&text, number)
    return put_plain_field(out, name, digits, text.at - digits, is_json)
