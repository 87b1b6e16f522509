# Batches and records that are packed; the body of a batch send, decoded and encoded.

def item_columns(bytes body, count_max):
    """Flags, bodies and property texts of a batch; a malformed one is left to the Python form."""
    cdef const uint8_t* data = chars(body)
    cdef Py_ssize_t end = PyBytes_GET_SIZE(body), at = 0, count = 0, total, size, text_size
    cdef Py_ssize_t most = count_max
    cdef list flags, bodies, texts
    while at < end:
        if end - at < BATCH_HEAD + 2:
            return NotImplemented
        total, size = <int32_t>load4(data + at), <int32_t>load4(data + at + 16)
        if total < BATCH_HEAD + 2 or total > end - at or size < 0 or size > total - BATCH_HEAD - 2:
            return NotImplemented
        text_size = (data[at + BATCH_HEAD + size] << 8) | data[at + BATCH_HEAD + size + 1]
        if BATCH_HEAD + 2 + size + text_size != total or text_size > PROPERTIES_SIZE_MAX:
            return NotImplemented
        at += total
        count += 1
    if count > most:
        return NotImplemented
    flags, bodies, texts = new_list(count), new_list(count), new_list(count)
    at = 0
    for index in range(count):
        total, size = <int32_t>load4(data + at), <int32_t>load4(data + at + 16)
        append_new(flags, index, <int32_t>load4(data + at + 12))
        append_new(
            bodies, index, PyBytes_FromStringAndSize(<char*>data + at + BATCH_HEAD, size)
        )
        text_size = total - BATCH_HEAD - 2 - size
        append_new(
            texts,
            index,
            PyBytes_FromStringAndSize(<char*>data + at + BATCH_HEAD + size + 2, text_size),
        )
        at += total
    finish_list(flags)
    finish_list(bodies)
    finish_list(texts)
    return flags, bodies, texts


cdef struct Fields:
    int32_t queue_id
    int32_t sys_flag
    int64_t born_ms
    int64_t stored_ms
    int32_t reconsume_times
    int64_t prepared_position
    const uint8_t* born_host
    Py_ssize_t born_size
    const uint8_t* store_host
    Py_ssize_t store_size
    const uint8_t* topic
    Py_ssize_t topic_size


cdef bint fits(bytes text, Fields* fields) noexcept:
    """Whether hosts and system flag agree, and topic and properties are not too long."""
    return (
        fields.born_size == (20 if fields.sys_flag & 16 else 8)
        and fields.store_size == (20 if fields.sys_flag & 32 else 8)
        and fields.topic_size <= 32767
        and PyBytes_GET_SIZE(text) <= PROPERTIES_SIZE_MAX
    )


cdef Py_ssize_t record_size(bytes body, bytes text, Fields* fields) noexcept:
    cdef Py_ssize_t width = 1 if fields.topic_size <= TOPIC_SIZE_MAX_V1 else 2
    return (
        RECORD_FIXED + fields.born_size + fields.store_size + PyBytes_GET_SIZE(body) + width
        + fields.topic_size + 2 + PyBytes_GET_SIZE(text)
    )


cdef uint8_t* write_head(
    uint8_t* at, Fields* fields, Py_ssize_t total, uint32_t crc, int32_t flag,
    int64_t queue_offset, int64_t position, Py_ssize_t body_size,
) noexcept nogil:
    """Write what is in front of a record's body; gives where that begins."""
    store4(at, <uint32_t>total)
    store4(at + 4, MAGIC_V1 if fields.topic_size <= TOPIC_SIZE_MAX_V1 else MAGIC_V2)
    store4(at + 8, crc & 0x7FFFFFFF)
    store4(at + 12, fields.queue_id)
    store4(at + 16, flag)
    store8(at + 20, queue_offset)
    store8(at + 28, position)
    store4(at + 36, fields.sys_flag)
    store8(at + 40, fields.born_ms)
    memcpy(at + 48, fields.born_host, fields.born_size)
    at += 48 + fields.born_size
    store8(at, fields.stored_ms)
    memcpy(at + 8, fields.store_host, fields.store_size)
    at += 8 + fields.store_size
    store4(at, fields.reconsume_times)
    store8(at + 4, fields.prepared_position)
    store4(at + 12, <uint32_t>body_size)
    return at + 16


cdef uint8_t* write_record(
    uint8_t* at, Fields* fields, Py_ssize_t total, int32_t flag, int64_t queue_offset,
    int64_t position, bytes body, bytes text,
):
    """Write one record; gives where the next one begins."""
    cdef Py_ssize_t body_size = PyBytes_GET_SIZE(body), text_size = PyBytes_GET_SIZE(text)
    at = write_head(
        at, fields, total, <uint32_t>crc32(body), flag, queue_offset, position, body_size
    )
    memcpy(at, chars(body), body_size)
    at += body_size
    if fields.topic_size <= TOPIC_SIZE_MAX_V1:
        at[0] = <uint8_t>fields.topic_size
        at += 1
    else:
        store2(at, <uint32_t>fields.topic_size)
        at += 2
    memcpy(at, fields.topic, fields.topic_size)
    at += fields.topic_size
    store2(at, <uint32_t>text_size)
    memcpy(at + 2, chars(text), text_size)
    return at + 2 + text_size


cdef Fields fields_of(
    int32_t queue_id, int32_t sys_flag, int64_t born_ms, bytes born_host, int64_t stored_ms,
    bytes store_host, int32_t reconsume_times, int64_t prepared_position, bytes topic,
):
    return Fields(
        queue_id, sys_flag, born_ms, stored_ms, reconsume_times, prepared_position,
        chars(born_host), PyBytes_GET_SIZE(born_host), chars(store_host),
        PyBytes_GET_SIZE(store_host), chars(topic), PyBytes_GET_SIZE(topic),
    )


def pack(
    int32_t queue_id, int32_t flag, int64_t queue_offset, int64_t position, int32_t sys_flag,
    int64_t born_ms, bytes born_host, int64_t stored_ms, bytes store_host,
    int32_t reconsume_times, int64_t prepared_position, body, bytes topic, properties,
):
    """One record."""
    if not PyBytes_CheckExact(body) or not PyBytes_CheckExact(properties):
        return NotImplemented
    cdef Fields fields = fields_of(
        queue_id, sys_flag, born_ms, born_host, stored_ms, store_host, reconsume_times,
        prepared_position, topic,
    )
    cdef Py_ssize_t total = record_size(body, properties, &fields)
    cdef bytes packed
    if not fits(properties, &fields) or total > 0x7FFFFFFF:
        return NotImplemented
    packed = PyBytes_FromStringAndSize(NULL, total)
    write_record(
        <uint8_t*>PyBytes_AS_STRING(packed), &fields, total, flag, queue_offset, position, body,
        properties,
    )
    return packed


@cython.boundscheck(True)
def pack_batch(
    int32_t queue_id, int64_t queue_offset, int64_t position, int32_t sys_flag, int64_t born_ms,
    bytes born_host, int64_t stored_ms, bytes store_host, int32_t reconsume_times,
    int64_t prepared_position, bytes topic, parts,
):
    """The records of a batch without gaps, and their entries."""
    cdef list flags = listed(parts.flags), codes = listed(parts.tag_codes)
    # Copied: their sizes are summed up first, and must still be the same when they are written.
    cdef tuple bodies = tuple(parts.bodies), texts = tuple(parts.properties)
    cdef Py_ssize_t count = len(flags), size = 0, total, text_size, index
    cdef bytes text, records, entries
    cdef uint8_t* at
    cdef uint8_t* entry
    cdef Fields fields = fields_of(
        queue_id, sys_flag, born_ms, born_host, stored_ms, store_host, reconsume_times,
        prepared_position, topic,
    )
    if not len(bodies) == len(texts) == len(codes) == count:
        return NotImplemented
    for index in range(count):
        if not PyBytes_CheckExact(bodies[index]) or not PyBytes_CheckExact(texts[index]):
            return NotImplemented
        text = <bytes>texts[index]
        text_size = PyBytes_GET_SIZE(text)
        if not fits(text, &fields) or (text_size and chars(text)[text_size - 1] == 0):
            return NotImplemented
        size += record_size(<bytes>bodies[index], text, &fields)
    if size > INT32_MAX or position > INT64_MAX - size or queue_offset > INT64_MAX - count:
        return NotImplemented
    records = PyBytes_FromStringAndSize(NULL, size)
    entries = PyBytes_FromStringAndSize(NULL, count * ENTRY_SIZE)
    at, entry = <uint8_t*>PyBytes_AS_STRING(records), <uint8_t*>PyBytes_AS_STRING(entries)
    for index in range(count):
        total = record_size(<bytes>bodies[index], <bytes>texts[index], &fields)
        store8(entry, position)
        store4(entry + 8, <uint32_t>total)
        store8(entry + 12, <int64_t>codes[index])
        at = write_record(
            at, &fields, total, <int32_t>flags[index], queue_offset, position,
            <bytes>bodies[index], <bytes>texts[index],
        )
        entry += ENTRY_SIZE
        position += total
        queue_offset += 1
    return records, entries


# -- batches of a client -------------------------------------------------------------------------

def encode_items(list items):
    """The body of a batch send; messages that cannot be encoded are left to the Python form."""
    cdef list flags = [], bodies = [], texts = []
    cdef Py_ssize_t count, size = 0, body_size, text_size
    cdef bytes result
    cdef uint8_t* at
    for item in items:
        body, text, flag = item.body, item.properties, item.flag
        if type(text) is str:
            text = (<str>text).encode("utf-8", "surrogatepass")
        if type(body) is not bytes or type(text) is not bytes or type(flag) is not int:
            return NotImplemented
        if not -0x80000000 <= flag <= 0x7FFFFFFF:
            return NotImplemented
        text_size = PyBytes_GET_SIZE(text)
        if text_size > PROPERTIES_SIZE_MAX:
            return NotImplemented
        flags.append(flag)
        bodies.append(body)
        texts.append(text)
        size += BATCH_HEAD + 2 + PyBytes_GET_SIZE(body) + text_size
    if size > 0x7FFFFFFF:
        return NotImplemented
    count = len(bodies)  # not of `items`, which an item's properties may have changed
    result = PyBytes_FromStringAndSize(NULL, size)
    at = <uint8_t*>PyBytes_AS_STRING(result)
    for index in range(count):
        body_size = PyBytes_GET_SIZE(<bytes>bodies[index])
        text_size = PyBytes_GET_SIZE(<bytes>texts[index])
        store4(at, BATCH_HEAD + body_size + 2 + text_size)
        store4(at + 4, 0)
        store4(at + 8, 0)
        store4(at + 12, <int32_t>flags[index])
        store4(at + 16, body_size)
        at += BATCH_HEAD
        memcpy(at, chars(<bytes>bodies[index]), body_size)
        at += body_size
        store2(at, text_size)
        memcpy(at + 2, chars(<bytes>texts[index]), text_size)
        at += 2 + text_size
    return result
