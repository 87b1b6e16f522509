# Whole records, ids of messages, queue entries, and records copied from another log.

cdef inline uint64_t load8(const uint8_t* at) noexcept nogil:
    return (<uint64_t>load4(at) << 32) | load4(at + 4)


cdef struct Parts:
    Py_ssize_t total
    uint32_t sys_flag
    Py_ssize_t born_size
    Py_ssize_t store_size
    const uint8_t* body
    Py_ssize_t body_size
    const uint8_t* topic
    Py_ssize_t topic_size
    const uint8_t* text
    Py_ssize_t text_size


cdef bint find_parts(const uint8_t* head, Py_ssize_t left, Parts* parts) noexcept nogil:
    """Find the parts of the record that begins at `head`; False if its lengths do not fill it."""
    cdef uint32_t magic = load4(head + 4)
    cdef Py_ssize_t fixed, width = 1 if magic == MAGIC_V1 else 2
    cdef const uint8_t* at
    parts.total, parts.sys_flag = <int32_t>load4(head), load4(head + 36)
    parts.born_size = 20 if parts.sys_flag & 16 else 8
    parts.store_size = 20 if parts.sys_flag & 32 else 8
    fixed = RECORD_FIXED + parts.born_size + parts.store_size
    if magic != MAGIC_V1 and magic != MAGIC_V2 or not fixed + width + 2 <= parts.total <= left:
        return False
    parts.body, parts.body_size = head + fixed, <int32_t>load4(head + fixed - 4)
    if not 0 <= parts.body_size <= parts.total - fixed - width - 2:
        return False
    at = parts.body + parts.body_size
    parts.topic_size = at[0] if width == 1 else <Py_ssize_t>(at[0] << 8 | at[1])
    parts.topic = at + width
    parts.text = parts.topic + parts.topic_size + 2
    parts.text_size = head + parts.total - parts.text
    at = parts.text - 2
    return parts.text_size >= 0 and <Py_ssize_t>(at[0] << 8 | at[1]) == parts.text_size


def whole_records(bytes data, Py_ssize_t at):
    """Records that follow each other from a place on, and where the first that is not whole is."""
    cdef const uint8_t* head
    cdef const uint8_t* known = NULL
    cdef Py_ssize_t end = PyBytes_GET_SIZE(data), known_size = -1, born_size, fixed
    cdef Parts parts
    cdef list records = []
    cdef bytes body
    if at < 0:
        return NotImplemented
    make, topic = _record_type(), None
    while end - at >= RECORD_SIZE_MIN:
        head = chars(data) + at
        if (
            not find_parts(head, end - at, &parts)
            or parts.text_size > PROPERTIES_SIZE_MAX or parts.topic_size > 32767
        ):
            break
        body = PyBytes_FromStringAndSize(<char*>parts.body, parts.body_size)
        if <uint32_t>crc32(body) & 0x7FFFFFFF != load4(head + 8):
            break
        if parts.topic_size != known_size or memcmp(known, parts.topic, known_size) != 0:
            try:
                topic = PyUnicode_DecodeUTF8(<char*>parts.topic, parts.topic_size, "surrogatepass")
            except UnicodeDecodeError:
                break
            known, known_size = parts.topic, parts.topic_size
        born_size, fixed = parts.born_size, parts.body - head
        records.append(
            make(
                topic, <int32_t>load4(head + 12), <int64_t>load8(head + 20), <int64_t>load8(head + 28),
                parts.total, body, PyBytes_FromStringAndSize(<char*>parts.text, parts.text_size),
                <int32_t>load4(head + 16), <int32_t>parts.sys_flag, <int64_t>load8(head + 40),
                PyBytes_FromStringAndSize(<char*>head + 48, born_size),
                <int64_t>load8(head + 48 + born_size),
                PyBytes_FromStringAndSize(<char*>head + 56 + born_size, parts.store_size),
                <int32_t>load4(head + fixed - 16), <int64_t>load8(head + fixed - 12), load4(head + 8),
            )
        )
        at += parts.total
    return records, at


cdef object _Record = None


cdef object _record_type():
    """The type of records, whose module imports this one."""
    global _Record
    if _Record is None:
        from roquet.wire.records.record import Record

        _Record = Record
    return _Record


# -- message ids ---------------------------------------------------------------------------------

cdef inline uint8_t* write_hex(uint8_t* out, const uint8_t* at, Py_ssize_t size) noexcept:
    """Write bytes as hexadecimal digits in upper case; gives where the next ones begin."""
    cdef const uint8_t* digits = b"0123456789ABCDEF"
    cdef Py_ssize_t index
    for index in range(size):
        out[0], out[1] = digits[at[index] >> 4], digits[at[index] & 15]
        out += 2
    return out


def offset_message_ids(bytes store_host, positions):
    """Ids of a host and several positions, joined by commas."""
    # Copied: the conversion of an odd number could change a list.
    cdef tuple places = tuple(positions)
    cdef Py_ssize_t host_size = PyBytes_GET_SIZE(store_host), size = 2 * host_size + 17
    cdef uint8_t[8] position
    cdef bytes ids
    cdef uint8_t* out
    if not places or len(places) > INT32_MAX // size:
        return NotImplemented
    ids = PyBytes_FromStringAndSize(NULL, len(places) * size)
    out = <uint8_t*>PyBytes_AS_STRING(ids)
    for place in places:
        if type(place) is not int:
            return NotImplemented
        store8(position, <int64_t>place)
        out = write_hex(out, chars(store_host), host_size)
        out = write_hex(out, position, 8)
        out[0] = 44
        out += 1
    return PyUnicode_DecodeASCII(PyBytes_AS_STRING(ids), len(places) * size - 1, NULL)


# -- queue entries -------------------------------------------------------------------------------

def entry_columns(entries):
    """Positions, sizes and tag codes of encoded entries."""
    cdef Py_buffer view
    cdef const uint8_t* at
    cdef Py_ssize_t count, index
    cdef list positions, sizes, codes
    PyObject_GetBuffer(entries, &view, PyBUF_SIMPLE)
    try:
        at, count = <const uint8_t*>view.buf, view.len // ENTRY_SIZE
        if view.len % ENTRY_SIZE:
            return NotImplemented
        positions, sizes, codes = new_list(count), new_list(count), new_list(count)
        for index in range(count):
            append_new(positions, index, <int64_t>load8(at))
            append_new(sizes, index, <int32_t>load4(at + 8))
            append_new(codes, index, <int64_t>load8(at + 12))
            at += ENTRY_SIZE
    finally:
        PyBuffer_Release(&view)
    finish_list(positions)
    finish_list(sizes)
    finish_list(codes)
    return positions, sizes, codes


def sum_sizes(entries):
    """Bytes of the records of encoded entries."""
    cdef Py_buffer view
    cdef const uint8_t* at
    cdef Py_ssize_t count, index
    cdef int64_t total = 0
    PyObject_GetBuffer(entries, &view, PyBUF_SIMPLE)
    try:
        at, count = <const uint8_t*>view.buf, view.len // ENTRY_SIZE
        if view.len % ENTRY_SIZE:
            return NotImplemented
        for index in range(count):
            total += <int32_t>load4(at + index * ENTRY_SIZE + 8)
    finally:
        PyBuffer_Release(&view)
    return total


def join_entries(entries, int64_t size_max, Py_ssize_t least):
    """Count, bytes, starts and stops of the log's ranges that hold the records of entries."""
    cdef Py_buffer view
    cdef const uint8_t* at
    cdef Py_ssize_t limit, count = 0
    cdef int64_t position, size, total = 0, start = 0, stop = -1
    cdef list starts = [], stops = []
    PyObject_GetBuffer(entries, &view, PyBUF_SIMPLE)
    try:
        at, limit = <const uint8_t*>view.buf, view.len // ENTRY_SIZE
        if view.len % ENTRY_SIZE:
            return NotImplemented
        while count < limit:
            position, size = <int64_t>load8(at), <int32_t>load4(at + 8)
            if position < 0 or position > POSITION_MAX or size < 0:
                return NotImplemented
            if size == FILLER_SIZE or (total + size > size_max and count >= least):
                break
            if position != stop:
                if count:
                    stops.append(stop)
                starts.append(position)
            stop = position + size
            total += size
            count += 1
            at += ENTRY_SIZE
    finally:
        PyBuffer_Release(&view)
    if count:
        stops.append(stop)
    return count, total, starts, stops


def adjacent_range(entries, Py_ssize_t start, Py_ssize_t count, int64_t size_max):
    """The log's range with the records of entries; None if they do not follow each other."""
    cdef Py_buffer view
    cdef const uint8_t* at
    cdef int64_t position, size, first = 0, stop = 0
    cdef Py_ssize_t index
    PyObject_GetBuffer(entries, &view, PyBUF_SIMPLE)
    try:
        if start < 0 or start > view.len or not 0 < count <= (view.len - start) // ENTRY_SIZE:
            return None
        at = <const uint8_t*>view.buf + start
        for index in range(count):
            position, size = <int64_t>load8(at), <int32_t>load4(at + 8)
            if position < 0 or position > POSITION_MAX or size < 0:
                return NotImplemented
            if index == 0:
                first = stop = position
            if position != stop or size == FILLER_SIZE or stop + size - first > size_max:
                return None
            stop += size
            at += ENTRY_SIZE
        return first, stop
    finally:
        PyBuffer_Release(&view)


# -- records copied from another log -------------------------------------------------------------

cdef struct PlainRow:
    int64_t position
    int64_t tag_code
    int32_t size
    int32_t group


cdef struct PlainGroup:
    int64_t first
    int64_t count
    uint8_t* out


cdef bytes _TAGS_START = names.TAGS.encode() + b"\x01"
cdef bytes _SCHEDULE_TOPIC = b"SCHEDULE_TOPIC_XXXX"


cdef list encoded_groups(
    list topics, list queue_ids, PlainGroup* groups, const PlainRow* rows, Py_ssize_t count
):
    """Topic, queue id, first offset and encoded entries of each group of rows."""
    cdef list encoded = []
    cdef bytes entries
    cdef PlainGroup* group
    cdef Py_ssize_t index
    for index in range(len(topics)):
        entries = PyBytes_FromStringAndSize(NULL, groups[index].count * ENTRY_SIZE)
        groups[index].out = <uint8_t*>PyBytes_AS_STRING(entries)
        encoded.append((topics[index], queue_ids[index], groups[index].first, entries))
    for index in range(count):
        group = &groups[rows[index].group]
        store8(group.out, <uint64_t>rows[index].position)
        store4(group.out + 8, <uint32_t>rows[index].size)
        store8(group.out + 12, <uint64_t>rows[index].tag_code)
        group.out += ENTRY_SIZE
    return encoded


def plain_records(view, Py_ssize_t at, Py_ssize_t limit, int64_t position, Py_ssize_t count_max):
    """Entries by queue, and the index's columns, of ordinary records that follow each other."""
    cdef Py_buffer buffer
    cdef const uint8_t* data
    cdef const uint8_t* head
    cdef const uint8_t* known = NULL
    cdef Py_ssize_t room, count = 0, known_size = -1
    cdef Parts parts
    cdef int32_t queue_id, known_id = 0, group = -1
    cdef int64_t offset, code
    cdef Span tag
    cdef list positions = [], sizes = [], topics = [], texts = [], times = []
    cdef list group_topics = [], group_ids = []
    cdef dict numbers = {}
    cdef bytes row_memory, group_memory, name, topic = b""
    cdef PlainRow* rows
    cdef PlainGroup* groups
    tag.at, tag.size = NULL, 0
    if at < 0 or not 0 <= position <= POSITION_MAX:
        return NotImplemented
    PyObject_GetBuffer(view, &buffer, PyBUF_SIMPLE)
    try:
        if limit > buffer.len:
            return NotImplemented
        data = <const uint8_t*>buffer.buf
        room = max(0, min(count_max, max(0, limit - at) // RECORD_SIZE_MIN))
        row_memory = PyBytes_FromStringAndSize(NULL, room * <Py_ssize_t>sizeof(PlainRow))
        group_memory = PyBytes_FromStringAndSize(NULL, room * <Py_ssize_t>sizeof(PlainGroup))
        rows = <PlainRow*>PyBytes_AS_STRING(row_memory)
        groups = <PlainGroup*>PyBytes_AS_STRING(group_memory)
        while count < room and limit - at >= RECORD_SIZE_MIN:
            head = data + at
            if <int64_t>load8(head + 28) != position or not find_parts(head, limit - at, &parts):
                break
            if parts.sys_flag & 4 or parts.sys_flag & 128:  # prepared, rolled back or a batch
                break
            if is_name(parts.topic, parts.topic_size, _SCHEDULE_TOPIC):
                break
            body = PyBytes_FromStringAndSize(<char*>parts.body, parts.body_size)
            if <uint32_t>crc32(body) & 0x7FFFFFFF != load4(head + 8):
                break
            code = 0
            if find_value(parts.text, parts.text_size, _TAGS_START, 0, &tag):
                if not is_ascii(tag.at, tag.size):
                    break
                code = ascii_hash(tag.at, tag.size, 0)
            queue_id, offset = <int32_t>load4(head + 12), <int64_t>load8(head + 20)
            if (
                group < 0 or queue_id != known_id or parts.topic_size != known_size
                or memcmp(known, parts.topic, known_size) != 0
            ):
                known, known_size, known_id = parts.topic, parts.topic_size, queue_id
                name = PyBytes_FromStringAndSize(NULL, 4 + known_size)
                memcpy(PyBytes_AS_STRING(name), head + 12, 4)
                memcpy(PyBytes_AS_STRING(name) + 4, known, known_size)
                number = numbers.get(name)
                if number is None:
                    group = <int32_t>len(group_topics)
                    topic = PyBytes_FromStringAndSize(<char*>known, known_size)
                    numbers[name] = group
                    group_topics.append(topic)
                    group_ids.append(queue_id)
                    groups[group].first, groups[group].count = offset, 0
                else:
                    group = <int32_t>number
                    topic = <bytes>group_topics[group]
            if (
                offset < groups[group].first
                or <uint64_t>offset - <uint64_t>groups[group].first != <uint64_t>groups[group].count
            ):
                break
            groups[group].count += 1
            rows[count].position, rows[count].size = position, <int32_t>parts.total
            rows[count].tag_code, rows[count].group = code, group
            positions.append(position)
            sizes.append(parts.total)
            topics.append(topic)
            texts.append(PyBytes_FromStringAndSize(<char*>parts.text, parts.text_size))
            times.append(<int64_t>load8(head + 48 + parts.born_size))
            count += 1
            at += parts.total
            position += parts.total
        encoded = encoded_groups(group_topics, group_ids, groups, rows, count)
    finally:
        PyBuffer_Release(&buffer)
    return count, position, encoded, (positions, sizes, topics, texts, times)


cdef inline int64_t position_of(number) except? -2:
    """A position in the log; -1 for another number or value."""
    if type(number) is not int:
        return -1
    try:
        return number
    except OverflowError:
        return -1


def join_ranges(view, begin, starts, stops):
    """The bytes of the ranges, of a view that begins at `begin`; None if one is not all in it."""
    cdef Py_buffer log
    # Copied: their sizes are summed up first, and must still be the same when they are joined.
    cdef tuple firsts = tuple(starts), ends = tuple(stops)
    cdef Py_ssize_t count = len(firsts), index
    cdef int64_t first, start, stop, size = 0
    cdef bytes joined
    cdef uint8_t* at
    first = position_of(begin)
    if not count or len(ends) != count or not 0 <= first <= POSITION_MAX:
        return NotImplemented
    PyObject_GetBuffer(view, &log, PyBUF_SIMPLE)
    try:
        for index in range(count):
            start, stop = position_of(firsts[index]), position_of(ends[index])
            if start < 0 or stop < start or size > INT32_MAX:
                return NotImplemented
            if start < first or stop > first + log.len:
                return None
            size += stop - start
        joined = PyBytes_FromStringAndSize(NULL, size)
        at = <uint8_t*>PyBytes_AS_STRING(joined)
        for index in range(count):
            start, stop = firsts[index], ends[index]
            memcpy(at, <const uint8_t*>log.buf + (start - first), stop - start)
            at += stop - start
    finally:
        PyBuffer_Release(&log)
    return joined
