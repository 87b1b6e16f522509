# Properties in their encoded form: facts of a text, one value, keys for the index.

cdef bytes _UNIQUE_KEY = names.UNIQUE_KEY.encode()
cdef bytes _TAGS = names.TAGS.encode()
cdef bytes _WAIT = names.WAIT.encode()
cdef bytes _UNIQUE_START = _UNIQUE_KEY + b"\x01"
cdef bytes _KEYS_START = names.KEYS.encode() + b"\x01"
cdef list _SPECIAL = []


def set_special(special):
    """Set the names of properties that `plain_facts` leaves to the Python form."""
    _SPECIAL[:] = sorted(str.encode(name) for name in special)


cdef struct Facts:
    const uint8_t* text
    const uint8_t* tag
    Py_ssize_t tag_size
    const uint8_t* key
    Py_ssize_t key_size
    bint waits


cdef struct Span:
    const uint8_t* at
    Py_ssize_t size


cdef inline int32_t ascii_hash(const uint8_t* at, Py_ssize_t size, uint32_t begun) noexcept nogil:
    """Java's hash of ASCII characters behind others, whose hash is `begun`."""
    cdef Py_ssize_t index
    for index in range(size):
        begun = begun * 31 + at[index]
    return <int32_t>begun


cdef inline bint is_ascii(const uint8_t* at, Py_ssize_t size) noexcept nogil:
    cdef uint64_t word = 0
    cdef uint8_t seen = 0
    cdef Py_ssize_t index
    while size >= 8:
        memcpy(&word, at, 8)
        if word & <uint64_t>0x8080808080808080:
            return False
        at += 8
        size -= 8
    for index in range(size):
        seen |= at[index]
    return seen < 128


cdef inline bint is_name(const uint8_t* at, Py_ssize_t size, bytes name) noexcept:
    return size == PyBytes_GET_SIZE(name) and memcmp(at, chars(name), size) == 0


cdef bint is_text(const uint8_t* at, Py_ssize_t size):
    """Whether bytes are UTF-8, perhaps with lone surrogates."""
    try:
        PyUnicode_DecodeUTF8(<char*>at, size, "surrogatepass")
    except UnicodeDecodeError:
        return False
    return True


cdef int64_t tag_code_of(Facts* facts):
    """Java's hash of the tag."""
    if is_ascii(facts.tag, facts.tag_size):
        return ascii_hash(facts.tag, facts.tag_size, 0)
    return _hash_code(PyUnicode_DecodeUTF8(<char*>facts.tag, facts.tag_size, "surrogatepass"))


cdef bint read_facts(const uint8_t* at, Py_ssize_t length, Facts* facts):
    """Read the facts of a text; False for one that is not plain."""
    cdef const uint8_t* end = at + length
    cdef const uint8_t* middle
    cdef const uint8_t* stop
    cdef Py_ssize_t size, value_size
    facts.text = facts.tag = facts.key = at
    facts.tag_size = facts.key_size = 0
    facts.waits = True
    if not is_ascii(at, length) and not is_text(at, length):
        return False
    while at < end:
        stop = <const uint8_t*>memchr(at, 2, end - at)
        if stop == NULL:
            return False
        middle = <const uint8_t*>memchr(at, 1, stop - at)
        if middle == NULL or middle == at or memchr(middle + 1, 1, stop - middle - 1) != NULL:
            return False
        size, value_size = middle - at, stop - middle - 1
        if is_name(at, size, _UNIQUE_KEY):
            facts.key, facts.key_size = middle + 1, value_size
        elif is_name(at, size, _TAGS):
            facts.tag, facts.tag_size = middle + 1, value_size
        elif is_name(at, size, _WAIT):
            facts.waits = not (value_size == 5 and memcmp(middle + 1, b"false", 5) == 0)
        else:
            for name in _SPECIAL:
                if is_name(at, size, <bytes>name):
                    return False
        at = stop + 1
    return facts.key_size > 0


def plain_facts(bytes text):
    """Tag code, whether the sender waits, and unique key of a plain text; None for another one."""
    cdef Facts facts
    if not read_facts(chars(text), PyBytes_GET_SIZE(text), &facts):
        return None
    return tag_code_of(&facts), facts.waits, PyBytes_FromStringAndSize(<char*>facts.key, facts.key_size)


def plain_batch(texts, bytes shared, bytes added):
    """Texts as they are stored, their tag codes, and whether the first one's sender waits."""
    cdef Facts facts
    cdef Py_ssize_t size, read_size, shared_size = PyBytes_GET_SIZE(shared)
    cdef Py_ssize_t added_size = PyBytes_GET_SIZE(added)
    cdef list stored = [], codes = []
    cdef bytes text, joined
    cdef uint8_t* at
    cdef bint waits = False, is_open
    for text in tuple(texts):
        if text is None:
            raise TypeError("a text of properties is bytes, not None")
        size = PyBytes_GET_SIZE(text)
        is_open = size > 0 and chars(text)[size - 1] != 2
        read_size = size + is_open + shared_size
        if read_size + added_size > PROPERTIES_SIZE_MAX:
            return None
        joined = PyBytes_FromStringAndSize(NULL, read_size + added_size)
        at = <uint8_t*>PyBytes_AS_STRING(joined)
        memcpy(at, chars(text), size)
        if is_open:
            at[size] = 2
        memcpy(at + size + is_open, chars(shared), shared_size)
        memcpy(at + read_size, chars(added), added_size)
        if not read_facts(at, read_size, &facts):
            return None
        if not stored:
            waits = facts.waits
        stored.append(joined)
        codes.append(tag_code_of(&facts))
    return (stored, codes, waits) if stored else NotImplemented


cdef bint find_value(
    const uint8_t* at, Py_ssize_t length, bytes name, Py_ssize_t least, Span* value
) noexcept:
    """Find the last value of at least `least` bytes; the name ends with its separator.

    False without one, and if it is empty.
    """
    cdef const uint8_t* end = at + length
    cdef const uint8_t* stop
    cdef Py_ssize_t size = PyBytes_GET_SIZE(name)
    value.at, value.size = at, 0
    while at < end:
        stop = <const uint8_t*>memchr(at, 2, end - at)
        if stop == NULL:
            stop = end
        if stop - at >= size + least and memcmp(at, chars(name), size) == 0:
            value.at, value.size = at + size, stop - at - size
        at = stop + 1
    return value.size > 0


cdef class PropertyFinder:
    """Finder of one property's value in encoded properties."""

    cdef bytes start

    def __cinit__(self, str name):
        self.start = name.encode() + b"\x01"

    def __call__(self, bytes properties):
        cdef Span value
        if not find_value(chars(properties), PyBytes_GET_SIZE(properties), self.start, 1, &value):
            return None
        return PyUnicode_DecodeUTF8(<char*>value.at, value.size, "replace")


def property_finder(name):
    """Finder of one property's value in encoded properties."""
    return PropertyFinder(name)


def property_positions(bytes block, edges, bytes topic):
    """Start of the properties text of each of several records of one topic, without gaps."""
    cdef tuple starts = tuple(edges)
    cdef Py_ssize_t count = len(starts) - 1, at, fixed, size = PyBytes_GET_SIZE(block), topic_size
    cdef uint32_t sys_flag
    cdef list begins = []
    topic_size = PyBytes_GET_SIZE(topic)
    topic_size += 3 if topic_size <= TOPIC_SIZE_MAX_V1 else 4
    for index in range(count):
        at = starts[index]
        if not 0 <= at <= size - RECORD_SIZE_MIN:
            return NotImplemented
        sys_flag = load4(chars(block) + at + 36)
        fixed = RECORD_FIXED + (20 if sys_flag & 16 else 8) + (20 if sys_flag & 32 else 8)
        if at + fixed > size:
            return NotImplemented
        begins.append(at + fixed + <int32_t>load4(chars(block) + at + fixed - 4) + topic_size)
    return begins


# -- the key index -------------------------------------------------------------------------------

cdef inline int32_t positive(int32_t code) noexcept nogil:
    """A hash as index files store it; the least number has no absolute value and becomes 0."""
    return code if code >= 0 else <int32_t>(<uint32_t>-<int64_t>code & 0x7FFFFFFF)


def key_hashes(topics, texts, hash_of):
    """Hashes of the index keys of several records, and the index of each key's record."""
    cdef list hashes = [], owners = []
    cdef Span span
    cdef const uint8_t* at
    cdef const uint8_t* end
    cdef const uint8_t* stop
    cdef bytes topic, text, known = None
    cdef uint32_t begun = 0
    cdef bint is_plain = False
    cdef Py_ssize_t index = 0
    if len(topics) != len(texts):
        return NotImplemented
    for topic, text in zip(topics, texts):
        if topic is None or text is None:
            raise TypeError("a topic and a text of properties are bytes, not None")
        if topic is not known:
            known, is_plain = topic, is_ascii(chars(topic), PyBytes_GET_SIZE(topic))
            begun = ascii_hash(chars(topic), PyBytes_GET_SIZE(topic), 0) * <uint32_t>31 + 35
        for name in (_UNIQUE_START, _KEYS_START):
            if not find_value(chars(text), PyBytes_GET_SIZE(text), <bytes>name, 0, &span):
                continue
            at, end = span.at, span.at + span.size
            while at < end:
                stop = end if name is _UNIQUE_START else <const uint8_t*>memchr(at, 32, end - at)
                if stop == NULL:
                    stop = end
                if stop > at:
                    if is_plain and is_ascii(at, stop - at):
                        hashes.append(positive(ascii_hash(at, stop - at, begun)))
                    else:
                        key = PyBytes_FromStringAndSize(<char*>at, stop - at)
                        hashes.append(hash_of(topic, key))
                    owners.append(index)
                at = stop + 1
        index += 1
    return hashes, owners


cdef inline uint32_t seconds_between(int64_t begin_ms, int64_t end_ms) noexcept:
    """Whole seconds, from 0 to what an entry holds; unsigned, as the difference may need 64 bits."""
    cdef uint64_t seconds
    if end_ms <= begin_ms:
        return 0
    seconds = (<uint64_t>end_ms - <uint64_t>begin_ms) // 1000
    return SECONDS_MAX if seconds > SECONDS_MAX else <uint32_t>seconds


def link_entries(slots, hashes, positions, times, int64_t begin_ms, int32_t first):
    """Entries numbered from `first` on, to which the slots then lead, and how many are new."""
    cdef Py_buffer view
    cdef bytes codes, starts, stored
    cdef Py_ssize_t count, slot_count, index
    cdef bytes rows
    cdef uint8_t* row
    cdef uint8_t* slot
    cdef int64_t position, stored_ms
    cdef int32_t code, before, number = first, used = 0
    if not (is_array(hashes, "i", 4) and is_array(positions, "q", 8) and is_array(times, "q", 8)):
        return NotImplemented
    codes, starts, stored = hashes.tobytes(), positions.tobytes(), times.tobytes()
    count = PyBytes_GET_SIZE(codes) // 4
    if not PyBytes_GET_SIZE(starts) == PyBytes_GET_SIZE(stored) == 8 * count:
        return NotImplemented
    if count >= <int64_t>INT32_MAX - first:
        return NotImplemented
    rows = PyBytes_FromStringAndSize(NULL, count * INDEX_ENTRY_SIZE)
    row = <uint8_t*>PyBytes_AS_STRING(rows)
    PyObject_GetBuffer(slots, &view, PyBUF_WRITABLE)
    try:
        slot_count = view.len // 4
        if slot_count == 0:
            return NotImplemented
        for index in range(count):
            memcpy(&code, chars(codes) + 4 * index, 4)
            memcpy(&position, chars(starts) + 8 * index, 8)
            memcpy(&stored_ms, chars(stored) + 8 * index, 8)
            slot = <uint8_t*>view.buf + 4 * (code % slot_count)
            before = <int32_t>load4(slot)
            if not 0 < before < number:
                before = 0
                used += 1
            store4(slot, number)
            store4(row, code)
            store8(row + 4, position)
            store4(row + 12, seconds_between(begin_ms, stored_ms))
            store4(row + 16, before)
            row += INDEX_ENTRY_SIZE
            number += 1
    finally:
        PyBuffer_Release(&view)
    return rows, used


cdef bint is_array(numbers, str code, Py_ssize_t size):
    """Whether numbers are an array of a type, whose items have a size."""
    return type(numbers) is array and numbers.typecode == code and numbers.itemsize == size
