# Plain batches: records made from the body of a batch send in one pass, without an object for each
# message.

cdef enum:
    BATCH_KEYS_MAX = 4096       # keys of a batch that is packed so, and so its messages
    BATCH_TEXT_MAX = 512        # bytes of stored properties: see PROPERTIES_SIZE_MAX of the buffer

cdef object _PackedBatch = None


cdef struct Keys:
    int32_t[BATCH_KEYS_MAX] hashes
    int64_t[BATCH_KEYS_MAX] positions
    Py_ssize_t count


def pack_items(
    int32_t queue_id, int64_t queue_offset, int64_t position, int32_t sys_flag, int64_t born_ms,
    bytes born_host, int64_t stored_ms, bytes store_host, int32_t reconsume_times, bytes topic,
    bytes items, bytes shared, bytes added,
):
    """The records of a plain batch, their entries, and the hashes of their keys; None for another."""
    global _PackedBatch
    cdef Fields fields = fields_of(
        queue_id, sys_flag, born_ms, born_host, stored_ms, store_host, reconsume_times, 0, topic,
    )
    cdef Py_ssize_t count = 0, size = 0, index, extra
    cdef const uint8_t* at = chars(items)
    cdef const uint8_t* end = at + PyBytes_GET_SIZE(items)
    cdef uint8_t* record
    cdef uint8_t* entry
    cdef bytes records, entries
    cdef list codes
    cdef object code = None
    cdef int64_t number = 0, known = 0
    cdef uint32_t begun
    cdef bint waits = False
    cdef Item item
    cdef Facts facts
    cdef Keys keys
    if _PackedBatch is None:
        from roquet.wire.records.plain_batch import PackedBatch as _PackedBatch
    if not fits(added, &fields) or fields.topic_size > TOPIC_SIZE_MAX_V1:
        return None
    if not is_ascii(fields.topic, fields.topic_size):
        return None
    extra = PyBytes_GET_SIZE(shared) + PyBytes_GET_SIZE(added)
    while at < end:
        if count == BATCH_KEYS_MAX or not read_item(at, end, &item):
            return None
        if item.text_size + item.is_open + extra > BATCH_TEXT_MAX:
            return None
        size += item_record_size(&item, &fields) + extra
        at += item.total
        count += 1
    if count == 0 or size > INT32_MAX or position > INT64_MAX - size:
        return None
    if queue_offset > INT64_MAX - count:
        return None
    records = PyBytes_FromStringAndSize(NULL, size)
    entries = PyBytes_FromStringAndSize(NULL, count * ENTRY_SIZE)
    codes = []
    record, entry = <uint8_t*>PyBytes_AS_STRING(records), <uint8_t*>PyBytes_AS_STRING(entries)
    begun = ascii_hash(fields.topic, fields.topic_size, 0) * <uint32_t>31 + 35
    keys.count, at = 0, chars(items)
    for index in range(count):
        read_item(at, end, &item)
        size = item_record_size(&item, &fields) + extra
        if not write_item(
            record, size, &item, &fields, queue_offset + index, position, shared, added, &facts
        ):
            return None
        number = tag_code_of(&facts)
        if code is None or number != known:
            code, known = number, number
        codes.append(code)              # few tags: mostly the same object
        if index == 0:
            waits = facts.waits
        if not add_keys(&keys, &facts, record + size - PyBytes_GET_SIZE(added), begun, position):
            return None
        store8(entry, position)
        store4(entry + 8, <uint32_t>size)
        store8(entry + 12, number)
        record += size
        entry += ENTRY_SIZE
        position += size
        at += item.total
    return _PackedBatch(
        records, entries, codes,
        PyBytes_FromStringAndSize(<char*>keys.hashes, keys.count * sizeof(int32_t)),
        PyBytes_FromStringAndSize(<char*>keys.positions, keys.count * sizeof(int64_t)), waits,
    )


cdef struct Item:
    Py_ssize_t total
    int32_t flag
    const uint8_t* body
    Py_ssize_t body_size
    const uint8_t* text
    Py_ssize_t text_size
    bint is_open                # whether the text needs a separator behind it


cdef bint read_item(const uint8_t* at, const uint8_t* end, Item* item) noexcept nogil:
    """Read the lengths of a batch's message; False if they disagree."""
    cdef const uint8_t* behind
    if end - at < BATCH_HEAD + 2:
        return False
    item.total, item.body_size = <int32_t>load4(at), <int32_t>load4(at + 16)
    if not BATCH_HEAD + 2 <= item.total <= end - at:
        return False
    if not 0 <= item.body_size <= item.total - BATCH_HEAD - 2:
        return False
    item.flag, item.body = <int32_t>load4(at + 12), at + BATCH_HEAD
    behind = item.body + item.body_size
    item.text, item.text_size = behind + 2, behind[0] << 8 | behind[1]
    if BATCH_HEAD + 2 + item.body_size + item.text_size != item.total:
        return False
    item.is_open = item.text_size > 0 and item.text[item.text_size - 1] != 2
    return True


cdef Py_ssize_t item_record_size(Item* item, Fields* fields) noexcept nogil:
    """Bytes of a message's record without the properties that all get."""
    return (
        RECORD_FIXED + fields.born_size + fields.store_size + item.body_size + 1
        + fields.topic_size + 2 + item.text_size + item.is_open
    )


cdef bint write_item(
    uint8_t* at, Py_ssize_t total, Item* item, Fields* fields, int64_t queue_offset,
    int64_t position, bytes shared, bytes added, Facts* facts,
):
    """Write the record of a message, and read the facts of its properties; False if not plain."""
    cdef uint8_t* text
    cdef Py_ssize_t shared_size = PyBytes_GET_SIZE(shared), added_size = PyBytes_GET_SIZE(added)
    cdef uint32_t crc = crc_of(item.body, item.body_size)
    at = write_head(at, fields, total, crc, item.flag, queue_offset, position, item.body_size)
    memcpy(at, item.body, item.body_size)
    at += item.body_size
    at[0] = <uint8_t>fields.topic_size
    memcpy(at + 1, fields.topic, fields.topic_size)
    at += 1 + fields.topic_size
    store2(at, <uint32_t>(item.text_size + item.is_open + shared_size + added_size))
    text = at = at + 2
    memcpy(at, item.text, item.text_size)
    at += item.text_size
    if item.is_open:
        at[0] = 2
        at += 1
    memcpy(at, chars(shared), shared_size)
    at += shared_size
    memcpy(at, chars(added), added_size)
    return read_facts(text, at - text, facts)


cdef bint add_keys(
    Keys* keys, Facts* facts, const uint8_t* end, uint32_t begun, int64_t position
) noexcept:
    """Add the hashes of a record's keys; False if they are too many or not ASCII.

    The properties that `facts` are of end at `end`; `begun` is the hash of what is in front of a
    key.
    """
    cdef Span words
    cdef const uint8_t* at = facts.key
    cdef const uint8_t* stop
    if not add_key(keys, at, facts.key_size, begun, position):
        return False
    if not find_value(facts.text, end - facts.text, _KEYS_START, 0, &words):
        return True
    at, end = words.at, words.at + words.size
    while at < end:
        stop = <const uint8_t*>memchr(at, 32, end - at)
        if stop == NULL:
            stop = end
        if stop > at and not add_key(keys, at, stop - at, begun, position):
            return False
        at = stop + 1
    return True


cdef bint add_key(
    Keys* keys, const uint8_t* at, Py_ssize_t size, uint32_t begun, int64_t position
) noexcept nogil:
    if keys.count == BATCH_KEYS_MAX or not is_ascii(at, size):
        return False
    keys.hashes[keys.count] = positive(ascii_hash(at, size, begun))
    keys.positions[keys.count] = position
    keys.count += 1
    return True
