# cython: language_level=3, boundscheck=False, wraparound=False, binding=True
# cython: allow_none_for_extension_args=False
"""Compiled forms of the inner loops of batches, of headers, of the key index, of reads, of filters
and of Arrow columns.

Each function does what the Python function of the same name does; see `speedups`. Fields of records
and of entries are big-endian. NotImplemented leaves a call to the Python form.

Bodies, records, properties and index slots come from the network and from damaged files: every
length is compared with the bytes that are there before it is followed. Offsets of Arrow columns
are compared, too; one outside of its column raises ValueError, since Arrow would follow it.
"""

cimport cython
from cpython.buffer cimport (
    PyBUF_SIMPLE,
    PyBUF_STRIDED_RO,
    PyBUF_WRITABLE,
    PyBuffer_Release,
    PyObject_GetBuffer,
)
from cpython.bytes cimport (
    PyBytes_AS_STRING,
    PyBytes_CheckExact,
    PyBytes_FromStringAndSize,
    PyBytes_GET_SIZE,
)
from cpython.list cimport PyList_New, PyList_SET_ITEM
from cpython.ref cimport Py_INCREF
from cpython.unicode cimport PyUnicode_DecodeASCII, PyUnicode_DecodeUTF8
from libc.stdint cimport INT32_MAX, INT64_MAX, int16_t, int32_t, int64_t, uint8_t, uint32_t, uint64_t
from libc.string cimport memchr, memcmp, memcpy, memset

from zlib import crc32

from msgspec import Raw

from roquet.model import properties as names
from roquet.wire.codes import Language, RequestCode
from roquet.wire.java_hash import hash_code as _hash_code

cdef extern from "Python.h":
    void PyObject_GC_Track(object)
    void PyObject_GC_UnTrack(object)
    const char* PyUnicode_AsUTF8AndSize(object, Py_ssize_t*) except NULL

cdef enum:
    BATCH_HEAD = 20             # total, magic, crc, flag, length of the body
    RECORD_SIZE_MIN = 91
    RECORD_FIXED = 72           # bytes of a record in front of its body, without the two hosts
    ENTRY_SIZE = 20             # position, size, tag code
    INDEX_ENTRY_SIZE = 20       # hash, position, seconds, the entry before
    TOPIC_SIZE_MAX_V1 = 127
    PROPERTIES_SIZE_MAX = 32767
    SECONDS_MAX = 0x7FFFFFFF
    PAIRS_MAX = 1024            # of a compact header
    NAME_SIZE_MAX = 32767       # of a name in it: its length is signed
    FILLER_SIZE = 0x7FFFFFFF    # of an entry without a record
    HEADER_READ_MAX = 2560 * 1024
    SEARCH_STEP = 1024          # places that are searched without a look at what was found
    COMPACT_FIXED = 21          # bytes of a compact header without its remark and its pairs
    HEADER_BUFFER = 4096        # bytes of a header that is written here; Python writes longer ones

cdef int64_t POSITION_MAX = 1 << 50

cdef uint32_t MAGIC_V1 = 0xDAA320A7
cdef uint32_t MAGIC_V2 = 0xDAA320AB


# -- numbers -------------------------------------------------------------------------------------

cdef inline uint32_t load4(const uint8_t* at) noexcept nogil:
    return (<uint32_t>at[0] << 24) | (<uint32_t>at[1] << 16) | (<uint32_t>at[2] << 8) | at[3]


cdef inline void store2(uint8_t* at, uint32_t number) noexcept nogil:
    at[0] = <uint8_t>(number >> 8)
    at[1] = <uint8_t>number


cdef inline void store4(uint8_t* at, uint32_t number) noexcept nogil:
    at[0] = <uint8_t>(number >> 24)
    at[1] = <uint8_t>(number >> 16)
    at[2] = <uint8_t>(number >> 8)
    at[3] = <uint8_t>number


cdef inline void store8(uint8_t* at, uint64_t number) noexcept nogil:
    store4(at, <uint32_t>(number >> 32))
    store4(at + 4, <uint32_t>number)


cdef inline const uint8_t* chars(bytes text) noexcept:
    return <const uint8_t*>PyBytes_AS_STRING(text)


cdef inline list new_list(Py_ssize_t count):
    """A list of unset items, which the garbage collector does not track until `finish_list`.

    Creating the next list may start a collection, and its callbacks see every tracked object.
    """
    cdef list items = PyList_New(count)
    PyObject_GC_UnTrack(items)
    return items


cdef inline void append_new(list items, Py_ssize_t index, object item) noexcept:
    """Set an item of a list that `new_list` made: the list takes the reference."""
    Py_INCREF(item)
    PyList_SET_ITEM(items, index, item)


cdef inline void finish_list(list items) noexcept:
    """Track a list whose items are all set."""
    PyObject_GC_Track(items)


cdef inline list listed(items):
    return <list>items if type(items) is list else list(items)


# -- batches -------------------------------------------------------------------------------------

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


cdef uint8_t* write_record(
    uint8_t* at, Fields* fields, Py_ssize_t total, int32_t flag, int64_t queue_offset,
    int64_t position, bytes body, bytes text,
):
    """Write one record; gives where the next one begins."""
    cdef Py_ssize_t body_size = PyBytes_GET_SIZE(body), text_size = PyBytes_GET_SIZE(text)
    store4(at, <uint32_t>total)
    store4(at + 4, MAGIC_V1 if fields.topic_size <= TOPIC_SIZE_MAX_V1 else MAGIC_V2)
    store4(at + 8, <uint32_t>crc32(body) & 0x7FFFFFFF)
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
    memcpy(at + 16, chars(body), body_size)
    at += 16 + body_size
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


# -- records -------------------------------------------------------------------------------------

cdef inline uint64_t load8(const uint8_t* at) noexcept nogil:
    return (<uint64_t>load4(at) << 32) | load4(at + 4)


def whole_records(bytes data, Py_ssize_t at):
    """Records that follow each other from a place on, and where the first that is not whole is."""
    cdef const uint8_t* head
    cdef const uint8_t* topic_at
    cdef const uint8_t* known = NULL
    cdef Py_ssize_t end = PyBytes_GET_SIZE(data), total, size, topic_size, text_size
    cdef Py_ssize_t born_size, store_size, fixed, width, known_size = -1
    cdef uint32_t magic, sys_flag
    cdef list records = []
    cdef bytes body
    if at < 0:
        return NotImplemented
    make, topic = _record_type(), None
    while end - at >= RECORD_SIZE_MIN:
        head = chars(data) + at
        total, magic, sys_flag = <int32_t>load4(head), load4(head + 4), load4(head + 36)
        born_size, store_size = 20 if sys_flag & 16 else 8, 20 if sys_flag & 32 else 8
        fixed, width = RECORD_FIXED + born_size + store_size, 1 if magic == MAGIC_V1 else 2
        if (magic != MAGIC_V1 and magic != MAGIC_V2) or not fixed + width + 2 <= total <= end - at:
            break
        size = <int32_t>load4(head + fixed - 4)
        if not 0 <= size <= total - fixed - width - 2:
            break
        topic_at = head + fixed + size
        topic_size = topic_at[0] if width == 1 else <Py_ssize_t>(topic_at[0] << 8 | topic_at[1])
        topic_at += width
        text_size = total - fixed - size - width - topic_size - 2
        if (
            not 0 <= text_size <= PROPERTIES_SIZE_MAX or topic_size > 32767
            or <Py_ssize_t>(topic_at[topic_size] << 8 | topic_at[topic_size + 1]) != text_size
        ):
            break
        body = PyBytes_FromStringAndSize(<char*>head + fixed, size)
        if <uint32_t>crc32(body) & 0x7FFFFFFF != load4(head + 8):
            break
        if topic_size != known_size or memcmp(known, topic_at, topic_size) != 0:
            try:
                topic = PyUnicode_DecodeUTF8(<char*>topic_at, topic_size, "surrogatepass")
            except UnicodeDecodeError:
                break
            known, known_size = topic_at, topic_size
        records.append(
            make(
                topic, <int32_t>load4(head + 12), <int64_t>load8(head + 20), <int64_t>load8(head + 28),
                total, body,
                PyBytes_FromStringAndSize(<char*>topic_at + topic_size + 2, text_size),
                <int32_t>load4(head + 16), <int32_t>sys_flag, <int64_t>load8(head + 40),
                PyBytes_FromStringAndSize(<char*>head + 48, born_size),
                <int64_t>load8(head + 48 + born_size),
                PyBytes_FromStringAndSize(<char*>head + 56 + born_size, store_size),
                <int32_t>load4(head + fixed - 16), <int64_t>load8(head + fixed - 12), load4(head + 8),
            )
        )
        at += total
    return records, at


cdef object _Record = None


cdef object _record_type():
    """The type of records, whose module imports this one."""
    global _Record
    if _Record is None:
        from roquet.wire.records.record import Record

        _Record = Record
    return _Record


# -- properties ----------------------------------------------------------------------------------

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
    facts.tag = facts.key = at
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


# -- expressions ---------------------------------------------------------------------------------

cdef enum:
    IS_FALSE, IS_UNKNOWN, IS_TRUE
    IS_UNUSUAL                  # a value that is left to the Python form, perhaps an error

cdef enum:
    EQUALS, IS_IN, STARTS_WITH, ENDS_WITH, CONTAINS, IS_INT, IS_LONG, IS_DOUBLE

cdef tuple _KINDS = ("=", "IN", "STARTSWITH", "ENDSWITH", "CONTAINS", "INT", "LONG", "DOUBLE")
cdef tuple _OUTCOMES = (False, None, True)

cdef enum:
    INT_DIGITS_MAX = 9          # of a number that is certainly an int
    DIGITS_MAX = 15             # of a number that a double holds exactly

cdef double[16] POWERS = [
    1e0, 1e1, 1e2, 1e3, 1e4, 1e5, 1e6, 1e7, 1e8, 1e9, 1e10, 1e11, 1e12, 1e13, 1e14, 1e15,
]


cdef bint read_number(Span* text, int kind, double* number) noexcept:
    """Read digits, maybe with a minus sign and a point; False for a text that is not so plain.

    The digits and the power of ten are exact, so their quotient is rounded once, as in Python.
    """
    cdef const uint8_t* end = text.at + text.size
    cdef bint is_negative = text.at[0] == c"-"
    cdef const uint8_t* at = text.at + is_negative
    cdef const uint8_t* fraction = NULL
    cdef int64_t whole = 0
    cdef Py_ssize_t digits = end - at
    if digits > DIGITS_MAX + 1:
        return False
    while at < end:
        if c"0" <= at[0] <= c"9":
            whole = whole * 10 + at[0] - c"0"
        elif at[0] == c"." and kind == IS_DOUBLE and fraction == NULL:
            fraction = at + 1
            digits -= 1
        else:
            return False
        at += 1
    if not 0 < digits <= (INT_DIGITS_MAX if kind == IS_INT else DIGITS_MAX):
        return False
    number[0] = <double>(-whole if is_negative else whole)
    if fraction != NULL:
        number[0] /= POWERS[end - fraction]
    return True


cdef class Condition:
    """Conditions on properties; this base alone leaves each message to the Python form."""

    cdef int outcome(self, const uint8_t* at, Py_ssize_t length) except -1:
        return IS_UNUSUAL


cdef class PropertyCondition(Condition):
    """A condition on the value of one property."""

    cdef bytes start
    cdef int kind
    cdef bytes text             # of a comparison with one text
    cdef str sought             # the same one
    cdef frozenset texts        # of IN
    cdef double low, high       # of a comparison with numbers
    cdef int absent, fails, holds

    def __cinit__(self, condition):
        self.start = condition.name.encode() + b"\x01"
        self.kind = _KINDS.index(condition.kind)
        if self.kind == IS_IN:
            self.texts = frozenset(condition.operand)
        elif self.kind < IS_INT:
            self.text = condition.operand
            self.sought = self.text.decode()
        else:
            self.low, self.high = condition.operand
        self.absent, self.fails, self.holds = map(_OUTCOMES.index, condition.outcomes)

    cdef int outcome(self, const uint8_t* at, Py_ssize_t length) except -1:
        cdef Span value
        cdef double number
        cdef bint is_met
        if not find_value(at, length, self.start, 1, &value):
            return self.absent
        if self.kind >= IS_INT:
            if not read_number(&value, self.kind, &number):
                return IS_UNUSUAL
            is_met = self.low <= number <= self.high
        elif self.kind == IS_IN:
            is_met = PyBytes_FromStringAndSize(<char*>value.at, value.size) in self.texts
        else:
            is_met = self.is_text(&value)
        return self.holds if is_met else self.fails

    cdef int is_text(self, Span* value) except -1:
        cdef Py_ssize_t size = PyBytes_GET_SIZE(self.text)
        if size > value.size or (size < value.size and self.kind == EQUALS):
            return False
        if self.kind == CONTAINS:
            return self.sought in PyUnicode_DecodeUTF8(<char*>value.at, value.size, "replace")
        if self.kind == ENDS_WITH:
            return memcmp(value.at + value.size - size, chars(self.text), size) == 0
        return memcmp(value.at, chars(self.text), size) == 0


cdef class Connective(Condition):
    """AND or OR: the first part with the deciding outcome decides."""

    cdef tuple parts
    cdef int deciding

    def __cinit__(self, connective):
        self.parts = tuple([condition_of(part) for part in connective.parts])
        self.deciding = IS_FALSE if connective.is_and else IS_TRUE

    cdef int outcome(self, const uint8_t* at, Py_ssize_t length) except -1:
        cdef int result = IS_TRUE if self.deciding == IS_FALSE else IS_FALSE, one
        for part in self.parts:
            one = (<Condition>part).outcome(at, length)
            if one == self.deciding or one == IS_UNUSUAL:
                return one
            if one == IS_UNKNOWN:
                result = one
        return result


cdef Condition condition_of(condition):
    return Connective(condition) if hasattr(condition, "parts") else PropertyCondition(condition)


cdef class RecordMatcher:
    """Indices of the first records of a block that match."""

    cdef Condition condition
    cdef object matches

    def __cinit__(self, conditions, matches):
        self.condition, self.matches = condition_of(conditions), matches

    def __call__(self, bytes block, begins, edges, Py_ssize_t most):
        cdef tuple starts = tuple(begins), ends = tuple(edges)[1:]
        cdef Py_ssize_t size = PyBytes_GET_SIZE(block), index, begin, end
        cdef list found = []
        cdef int one
        for index in range(min(len(starts), len(ends))):
            if len(found) >= most:
                break
            begin, end, one = starts[index], ends[index], IS_UNUSUAL
            if 0 <= begin <= end <= size:
                one = self.condition.outcome(chars(block) + begin, end - begin)
            if one == IS_UNUSUAL:
                # Places of damaged records may be negative, and mean what they mean in Python.
                one = IS_TRUE if self.matches(block[starts[index] : ends[index]]) else IS_FALSE
            if one == IS_TRUE:
                found.append(index)
        return found


def record_matcher(conditions, matches):
    """Matcher of an expression; one without conditions is left to the Python form."""
    return NotImplemented if conditions is None else RecordMatcher(conditions, matches)


# -- headers -------------------------------------------------------------------------------------

cdef uint8_t* write_text(uint8_t* out, const uint8_t* at, Py_ssize_t size) noexcept nogil:
    """Write a MessagePack text of less than 64 KiB; gives where the next one begins."""
    if size < 32:
        out[0] = <uint8_t>(0xA0 | size)
        out += 1
    elif size < 256:
        out[0], out[1] = 0xD9, <uint8_t>size
        out += 2
    else:
        out[0] = 0xDA
        store2(out + 1, <uint32_t>size)
        out += 3
    memcpy(out, at, size)
    return out + size


def pack_pairs(bytes pairs):
    """The ASCII pairs of a compact header as a MessagePack map; others are left to Python."""
    cdef const uint8_t* at = chars(pairs)
    cdef const uint8_t* end = at + PyBytes_GET_SIZE(pairs)
    cdef Py_ssize_t name_size, value_size, count = 0, left = PAIRS_MAX
    cdef bytes packed
    cdef uint8_t* begin
    cdef uint8_t* out
    # A text takes at most one byte more than in the pairs: its marker, but one byte less of length.
    packed = PyBytes_FromStringAndSize(NULL, 3 + (end - at))
    begin = <uint8_t*>PyBytes_AS_STRING(packed)
    out = begin + 3
    while at < end:
        left -= 1
        if left < 0 or end - at < 6:
            return NotImplemented
        name_size = at[0] << 8 | at[1]
        if name_size > NAME_SIZE_MAX or name_size > end - at - 6:
            return NotImplemented
        value_size = <Py_ssize_t>load4(at + 2 + name_size)
        if value_size > end - at - 6 - name_size or value_size > 65535:
            return NotImplemented
        if not is_ascii(at + 2, name_size) or not is_ascii(at + 6 + name_size, value_size):
            return NotImplemented
        if name_size and value_size:
            out = write_text(out, at + 2, name_size)
            out = write_text(out, at + 6 + name_size, value_size)
            count += 1
        at += 6 + name_size + value_size
    begin[0] = 0xDE
    store2(begin + 1, <uint32_t>count)
    return packed[: out - begin]


# -- frames --------------------------------------------------------------------------------------

cdef object _Command = None
cdef object _PackedFields = None
cdef dict _LANGUAGES = {language.name.encode(): language for language in Language}
cdef list _LANGUAGE_BY_CODE = list(Language)
cdef list _LANGUAGE_NAMES = [language.name.encode() for language in Language]
cdef object _OTHER = Language.OTHER
cdef dict _TRUNCATED = {int(code) & 0xFFFF: int(code) for code in RequestCode if code > 0xFFFF}


cdef int import_types() except -1:
    """Import the types of commands, whose modules import this one."""
    global _Command, _PackedFields
    from roquet.wire.command import Command
    from roquet.wire.compact import PackedFields

    _Command, _PackedFields = Command, PackedFields
    return 0


def decode(bytes frame):
    """The command of an ordinary frame, given without its length word."""
    cdef const uint8_t* at = chars(frame)
    cdef Py_ssize_t size = PyBytes_GET_SIZE(frame), end
    if size < 4:
        return NotImplemented
    if _Command is None:
        import_types()
    end = 4 + (load4(at) & 0xFFFFFF)
    if end > size or end > HEADER_READ_MAX:
        return NotImplemented
    if at[0] == 0:
        return json_command(at, at + 4, at + end, at + size)
    return compact_command(at, at + end, at + size) if at[0] == 1 else NotImplemented


cdef object compact_command(const uint8_t* at, const uint8_t* end, const uint8_t* stop):
    """The command of a compact header without a remark that ends with its pairs."""
    cdef Py_ssize_t size = end - at - 4 - COMPACT_FIXED
    cdef int32_t code, flag = <int32_t>load4(at + 13) if size >= 0 else 0
    if size < 0 or load4(at + 17) != 0 or load4(at + 21) != <uint32_t>size:
        return NotImplemented
    pairs = PyBytes_FromStringAndSize(<char*>at + 4 + COMPACT_FIXED, size)
    packed = pack_pairs(pairs)
    if packed is NotImplemented:
        return NotImplemented
    code = <int16_t>(at[4] << 8 | at[5])
    if not flag & 1:
        number = _TRUNCATED.get(code, code)
    else:
        number = code
    return _Command(
        number, _LANGUAGE_BY_CODE[at[6]] if at[6] < len(_LANGUAGE_BY_CODE) else _OTHER,
        <int16_t>(at[7] << 8 | at[8]), <int32_t>load4(at + 9), flag, None,
        _PackedFields(pairs, packed), PyBytes_FromStringAndSize(<char*>end, stop - end), 1,
    )


cdef enum:
    CODE, VERSION, OPAQUE, FLAG, LANGUAGE, REMARK, FIELDS, IGNORED, OTHER_KEY


cdef int key_of(const uint8_t* at, Py_ssize_t size) noexcept nogil:
    """The number of a header's key."""
    if size == 4:
        return CODE if memcmp(at, b"code", 4) == 0 else (
            FLAG if memcmp(at, b"flag", 4) == 0 else OTHER_KEY
        )
    if size == 6:
        return OPAQUE if memcmp(at, b"opaque", 6) == 0 else (
            REMARK if memcmp(at, b"remark", 6) == 0 else OTHER_KEY
        )
    if size == 7 and memcmp(at, b"version", 7) == 0:
        return VERSION
    if size == 8 and memcmp(at, b"language", 8) == 0:
        return LANGUAGE
    if size == 9 and memcmp(at, b"extFields", 9) == 0:
        return FIELDS
    if size == 23 and memcmp(at, b"serializeTypeCurrentRPC", 23) == 0:
        return IGNORED
    return OTHER_KEY


cdef object json_command(
    const uint8_t* begin, const uint8_t* at, const uint8_t* end, const uint8_t* stop
):
    """The command of a JSON header as Java and our clients write it: ASCII, without spaces."""
    cdef int64_t[4] numbers
    cdef Span[3] texts
    cdef const uint8_t* start
    cdef int key, seen = 0
    memset(numbers, 0, sizeof(numbers))
    memset(texts, 0, sizeof(texts))
    if end - at < 2 or at[0] != c"{":
        return NotImplemented
    while at[0] != c"}":
        at += 1                             # behind the brace or a comma
        start = at + 1
        at = text_end(at, end, False)
        if at == NULL or at == end or at[0] != c":":
            return NotImplemented
        key = key_of(start, at - start - 1)
        if key == OTHER_KEY or seen & 1 << key:
            return NotImplemented
        seen |= 1 << key
        start = at + 1
        if key < LANGUAGE:
            at = read_header_number(start, end, &numbers[key])
        elif key == FIELDS:
            at = object_end(start, end)
        else:
            at = text_end(start, end, False)
        if at == NULL or at == end or (at[0] != c"," and at[0] != c"}"):
            return NotImplemented
        if LANGUAGE <= key <= FIELDS:
            texts[key - LANGUAGE] = Span(start, at - start)
    if at + 1 != end:
        return NotImplemented
    language, remark, fields = _LANGUAGE_BY_CODE[0], None, b"{}"
    if seen & 1 << LANGUAGE:
        language = _LANGUAGES.get(
            PyBytes_FromStringAndSize(<char*>texts[0].at + 1, texts[0].size - 2), _OTHER
        )
    if seen & 1 << REMARK:
        remark = PyUnicode_DecodeASCII(<char*>texts[1].at + 1, texts[1].size - 2, NULL)
    if seen & 1 << FIELDS:
        fields = PyBytes_FromStringAndSize(<char*>texts[2].at, texts[2].size)
    return _Command(
        numbers[CODE], language, numbers[VERSION], numbers[OPAQUE], numbers[FLAG], remark,
        Raw(fields), PyBytes_FromStringAndSize(<char*>end, stop - end), 0,
    )


cdef const uint8_t* read_header_number(
    const uint8_t* at, const uint8_t* end, int64_t* number
) noexcept nogil:
    """Read a whole number of 32 bits; gives what follows, or NULL."""
    cdef bint is_negative = at < end and at[0] == c"-"
    cdef const uint8_t* start
    cdef int64_t value = 0
    at += is_negative
    start = at
    while at < end and c"0" <= at[0] <= c"9" and at - start < 11:
        value = 10 * value + at[0] - c"0"
        at += 1
    if at == start or at - start > 10 or (start[0] == c"0" and (at - start > 1 or is_negative)):
        return NULL
    if value - is_negative > INT32_MAX:
        return NULL
    number[0] = -value if is_negative else value
    return at


cdef Py_ssize_t escape_size(const uint8_t* at, const uint8_t* end) noexcept nogil:
    """Characters of an escape in a JSON text; 0 for a surrogate and for what is none."""
    cdef Py_ssize_t index
    if end - at < 2:
        return 0
    if at[1] != c"u":
        return 2 if memchr(b'"\\/bfnrt', at[1], 8) != NULL else 0
    if end - at < 6 or ((at[2] | 32) == c"d" and at[3] >= c"8"):
        return 0
    for index in range(2, 6):
        if not (c"0" <= at[index] <= c"9" or c"a" <= (at[index] | 32) <= c"f"):
            return 0
    return 6


cdef const uint8_t* text_end(
    const uint8_t* at, const uint8_t* end, bint may_escape
) noexcept nogil:
    """What follows a JSON text of ASCII; NULL for another value."""
    cdef Py_ssize_t size
    if at == end or at[0] != c'"':
        return NULL
    at += 1
    while at < end and at[0] != c'"':
        size = 1
        if at[0] == c"\\":
            size = escape_size(at, end) if may_escape else 0
        elif at[0] < 32 or at[0] > 126:
            size = 0
        if size == 0:
            return NULL
        at += size
    return at + 1 if at < end else NULL


cdef const uint8_t* object_end(const uint8_t* at, const uint8_t* end) noexcept nogil:
    """What follows a JSON object of texts, without spaces; NULL for another value."""
    if end - at < 2 or at[0] != c"{":
        return NULL
    if at[1] == c"}":
        return at + 2
    while at[0] != c"}":
        at = text_end(at + 1, end, True)
        if at == NULL or at == end or at[0] != c":":
            return NULL
        at = text_end(at + 1, end, True)
        if at == NULL or at == end or (at[0] != c"," and at[0] != c"}"):
            return NULL
    return at + 1


cdef struct Out:
    uint8_t* at
    uint8_t* end


cdef inline bint put(Out* out, const void* data, Py_ssize_t size) noexcept:
    """Append bytes; False when there is no room."""
    if size > out.end - out.at:
        return False
    memcpy(out.at, data, size)
    out.at += size
    return True


cdef inline bint put_number(Out* out, int64_t number) noexcept:
    """Append a number in decimal digits."""
    cdef uint8_t[20] digits
    cdef int first = 20
    cdef uint64_t left = 0 - <uint64_t>number if number < 0 else <uint64_t>number
    while first == 20 or left:
        first -= 1
        digits[first] = <uint8_t>(48 + left % 10)
        left //= 10
    if number < 0:
        first -= 1
        digits[first] = 45
    return put(out, &digits[first], 20 - first)


cdef bint put_quoted(Out* out, const uint8_t* at, Py_ssize_t size, uint8_t last) noexcept:
    """Append a JSON text; False for characters above `last` and for those with short escapes."""
    cdef const uint8_t* end = at + size
    if not put(out, b'"', 1):
        return False
    while at < end:
        if out.end - out.at < 6:
            return False
        if at[0] == 1 or at[0] == 2:        # the separators of properties
            memcpy(out.at, b"\\u0000", 6)
            out.at[5] += at[0]
            out.at += 6
        elif at[0] < 32 or at[0] == 34 or at[0] == 92 or at[0] == 127 or at[0] > last:
            return False
        else:
            out.at[0] = at[0]
            out.at += 1
        at += 1
    return put(out, b'"', 1)


cdef bint put_value(Out* out, object value, object kind, bint is_json) except -1:
    """Append the value of a field: as a JSON text, or with its length; False for an odd one."""
    cdef Py_ssize_t size
    cdef const char* text
    cdef uint8_t* start
    if kind is str:
        if type(value) is not str:
            return False
        try:
            text = PyUnicode_AsUTF8AndSize(value, &size)
        except UnicodeEncodeError:
            return False
        if is_json:
            return put_quoted(out, <const uint8_t*>text, size, 255)
    if is_json:
        if not put(out, b'"', 1):
            return False
    else:
        if out.end - out.at < 4:
            return False
        out.at += 4
    start = out.at
    if kind is str:
        if not put(out, text, size):
            return False
    elif kind is bool:
        if value is True:
            text, size = b"true", 4
        elif value is False:
            text, size = b"false", 5
        else:
            return False
        if not put(out, text, size):
            return False
    elif not isinstance(value, int) or not put_number(out, value):
        return False
    if is_json:
        return put(out, b'"', 1)
    store4(start - 4, <uint32_t>(out.at - start))
    return True


cdef bint put_fields(Out* out, object value, tuple layout, bint is_json) except -1:
    """Append the fields of a call or reply, without absent ones."""
    cdef bint is_first = True
    cdef tuple field
    cdef bytes name
    for field in layout:
        item = getattr(value, field[0])
        if item is None:
            if not field[3]:
                return False
            continue
        name = <bytes>field[1]
        if is_json:
            if not put(out, b',"' if not is_first else b'"', 1 + (not is_first)):
                return False
        else:
            if out.end - out.at < 2:
                return False
            store2(out.at, <uint32_t>PyBytes_GET_SIZE(name))
            out.at += 2
        if not put(out, chars(name), PyBytes_GET_SIZE(name)):
            return False
        if is_json and not put(out, b'":', 2):
            return False
        if not put_value(out, item, field[2], is_json):
            return False
        is_first = False
    return True


cdef bint put_json(
    Out* out, object value, tuple layout, int64_t code, int64_t flag, int64_t opaque,
    object language, int64_t version, object remark,
) except -1:
    cdef bytes name = <bytes>_LANGUAGE_NAMES[language]
    cdef uint8_t* start
    cdef Py_ssize_t size
    cdef const char* text
    if not (
        put(out, b'{"code":', 8) and put_number(out, code)
        and put(out, b',"flag":', 8) and put_number(out, flag)
        and put(out, b',"opaque":', 10) and put_number(out, opaque)
        and put(out, b',"language":"', 13) and put(out, chars(name), PyBytes_GET_SIZE(name))
        and put(out, b'","version":', 12) and put_number(out, version)
    ):
        return False
    if remark is not None:
        text = PyUnicode_AsUTF8AndSize(remark, &size)
        if not put(out, b',"remark":', 10) or not put_quoted(out, <const uint8_t*>text, size, 126):
            return False
    if not put(out, b',"extFields":{', 14):
        return False
    start = out.at
    if not put_fields(out, value, layout, True):
        return False
    if out.at == start:
        out.at = start - 14
        return put(out, b"}", 1)
    return put(out, b"}}", 2)


cdef bint put_compact(
    Out* out, object value, tuple layout, int32_t code, int32_t flag, int32_t opaque,
    uint8_t language, int16_t version, object remark,
) except -1:
    cdef uint8_t* at = out.at
    cdef uint8_t* start
    cdef Py_ssize_t size = 0
    cdef const char* text
    out.at += 17
    store2(at, <uint32_t>code)
    at[2] = language
    store2(at + 3, <uint32_t>version)
    store4(at + 5, <uint32_t>opaque)
    store4(at + 9, <uint32_t>flag)
    if remark:
        text = PyUnicode_AsUTF8AndSize(remark, &size)
        if not put(out, text, size):
            return False
    store4(at + 13, <uint32_t>size)
    if out.end - out.at < 4:
        return False
    start = out.at
    out.at += 4
    if not put_fields(out, value, layout, False):
        return False
    store4(start, <uint32_t>(out.at - start - 4))
    return True


def encode_frame(
    value, codec, serialize_type, code, flag, opaque, language, version, remark, body
):
    """The frame of a call or reply whose header is short and has ordinary texts."""
    cdef uint8_t[HEADER_BUFFER] header
    cdef Out out
    cdef Py_buffer view
    cdef Py_ssize_t size
    cdef bint is_json = serialize_type == 0, is_whole
    cdef bytes frame
    cdef uint8_t* at
    out.at, out.end = header, header + HEADER_BUFFER
    try:
        if is_json:
            is_whole = put_json(
                &out, value, codec.layout, code, flag, opaque, language, version, remark
            )
        else:
            is_whole = put_compact(
                &out, value, codec.layout, code, flag, opaque, language, version, remark
            )
    except (OverflowError, TypeError, ValueError, IndexError):
        return NotImplemented
    if not is_whole:
        return NotImplemented
    size = out.at - header
    PyObject_GetBuffer(body, &view, PyBUF_SIMPLE)
    try:
        if view.len > INT32_MAX - HEADER_BUFFER - 4:
            return NotImplemented
        frame = PyBytes_FromStringAndSize(NULL, 8 + size + view.len)
        at = <uint8_t*>PyBytes_AS_STRING(frame)
        store4(at, <uint32_t>(4 + size + view.len))
        store4(at + 4, <uint32_t>(size | (0 if is_json else 1 << 24)))
        memcpy(at + 8, header, size)
        memcpy(at + 8 + size, view.buf, view.len)
        return frame
    finally:
        PyBuffer_Release(&view)


# -- signed headers ------------------------------------------------------------------------------

cdef enum:
    SIGNED_MAX = 64             # fields; Apache's requests have up to 30

cdef object _SignedHeader = None
cdef bytes _SIGNATURE = b"Signature"
cdef bytes _ACCESS_KEY = b"AccessKey"
cdef bytes _UNSIGNED_ONCE = b"_UNIQUE_KEY_QUERY"


cdef struct SignedField:
    const uint8_t* name
    Py_ssize_t name_size
    const uint8_t* value
    Py_ssize_t value_size       # as it was received
    Py_ssize_t size             # without escapes
    Py_ssize_t at               # in the signed text


cdef int import_signed() except -1:
    """Import the type of signed headers, whose module imports this one."""
    global _SignedHeader, _PackedFields
    from roquet.wire.compact import PackedFields
    from roquet.wire.signed_header import SignedHeader

    _PackedFields, _SignedHeader = PackedFields, SignedHeader
    return 0


def signed_header(fields, tuple wanted):
    """The signed parts of ASCII names and texts that are all given once."""
    cdef SignedField[SIGNED_MAX] found
    cdef Py_buffer view
    cdef Py_ssize_t count
    cdef bytes pairs
    if _SignedHeader is None:
        import_signed()
    if type(fields) is _PackedFields:
        pairs = fields.pairs
        count = pair_fields(found, chars(pairs), chars(pairs) + PyBytes_GET_SIZE(pairs))
        return signed_parts(found, count, wanted)
    if type(fields) is not Raw:
        return NotImplemented
    PyObject_GetBuffer(fields, &view, PyBUF_SIMPLE)
    try:
        count = json_fields(found, <const uint8_t*>view.buf, <const uint8_t*>view.buf + view.len)
        return signed_parts(found, count, wanted)
    finally:
        PyBuffer_Release(&view)


cdef Py_ssize_t pair_fields(SignedField* found, const uint8_t* at, const uint8_t* end) noexcept:
    """Read the pairs of a compact header; -1 for more than `SIGNED_MAX` and for what is none."""
    cdef SignedField* field
    cdef Py_ssize_t count = 0, name_size, value_size
    while at < end:
        if count == SIGNED_MAX or end - at < 6:
            return -1
        name_size = at[0] << 8 | at[1]
        if (
            name_size > NAME_SIZE_MAX or name_size > end - at - 6
            or not is_ascii(at + 2, name_size)
        ):
            return -1
        if load4(at + 2 + name_size) > <uint64_t>(end - at - 6 - name_size):
            return -1
        value_size = <Py_ssize_t>load4(at + 2 + name_size)
        if name_size and value_size:
            field = &found[count]
            field.name, field.name_size = at + 2, name_size
            field.value, field.value_size = at + 6 + name_size, value_size
            field.size = value_size
            if not is_ascii(field.value, value_size) and not is_utf8(field.value, value_size):
                return -1
            count += 1
        at += 6 + name_size + value_size
    return count


cdef Py_ssize_t json_fields(SignedField* found, const uint8_t* at, const uint8_t* end) noexcept:
    """Read a JSON object of texts without spaces; -1 for another, or more than `SIGNED_MAX`."""
    cdef SignedField* field
    cdef Py_ssize_t count = 0
    if end - at < 2 or at[0] != c"{":
        return -1
    if at[1] == c"}":
        return 0 if end - at == 2 else -1
    while at[0] != c"}":
        if count == SIGNED_MAX:
            return -1
        field = &found[count]
        field.name = at + 2                 # behind the brace or a comma, and the quote
        at = text_end(at + 1, end, False)
        if at == NULL or at == end or at[0] != c":":
            return -1
        field.name_size = at - 1 - field.name
        at = read_value(at + 1, end, field)
        if at == NULL or at == end or (at[0] != c"," and at[0] != c"}"):
            return -1
        count += 1
    return count if at + 1 == end else -1


cdef const uint8_t* read_value(
    const uint8_t* at, const uint8_t* end, SignedField* field
) noexcept:
    """Read a JSON text; gives what follows, or NULL for another value or half a surrogate pair."""
    cdef Py_ssize_t size, saved = 0
    cdef uint8_t seen = 0
    if at == end or at[0] != c'"':
        return NULL
    at += 1
    field.value = at
    while at < end and at[0] != c'"':
        if at[0] == c"\\":
            size = escape_size(at, end)
            if size == 0:
                return NULL
            saved += size - width_of(escaped(at))
            at += size
        elif at[0] < 32:
            return NULL
        else:
            seen |= at[0]
            at += 1
    if at == end:
        return NULL
    field.value_size = at - field.value
    field.size = field.value_size - saved
    if seen > 127 and not is_utf8(field.value, field.value_size):
        return NULL
    return at + 1


cdef bint is_utf8(const uint8_t* at, Py_ssize_t size) noexcept:
    try:
        PyUnicode_DecodeUTF8(<char*>at, size, NULL)
    except UnicodeDecodeError:
        return False
    return True


cdef inline uint32_t hex_digit(uint8_t digit) noexcept nogil:
    return digit - c"0" if digit <= c"9" else (digit | 32) - c"a" + 10


cdef uint32_t escaped(const uint8_t* at) noexcept nogil:
    """The character of an escape for which `escape_size` is not 0."""
    if at[1] == c"u":
        return (
            hex_digit(at[2]) << 12 | hex_digit(at[3]) << 8 | hex_digit(at[4]) << 4
            | hex_digit(at[5])
        )
    if at[1] == c"b":
        return 8
    if at[1] == c"f":
        return 12
    if at[1] == c"n":
        return 10
    if at[1] == c"r":
        return 13
    if at[1] == c"t":
        return 9
    return at[1]                            # a quote or a slash


cdef inline Py_ssize_t width_of(uint32_t character) noexcept nogil:
    """Bytes of a character in UTF-8, of those with up to three."""
    return 1 if character < 0x80 else 2 if character < 0x800 else 3


cdef void write_value(uint8_t* out, SignedField* field) noexcept nogil:
    """Write a value without its escapes."""
    cdef const uint8_t* at = field.value
    cdef const uint8_t* end = at + field.value_size
    cdef uint32_t character
    if field.size == field.value_size:      # every escape is longer than its character
        memcpy(out, at, field.size)
        return
    while at < end:
        if at[0] != c"\\":
            out[0] = at[0]
            out += 1
            at += 1
            continue
        character = escaped(at)
        at += 6 if at[1] == c"u" else 2
        if character < 0x80:
            out[0] = <uint8_t>character
        elif character < 0x800:
            out[0] = <uint8_t>(0xC0 | character >> 6)
            out[1] = <uint8_t>(0x80 | (character & 63))
        else:
            out[0] = <uint8_t>(0xE0 | character >> 12)
            out[1] = <uint8_t>(0x80 | (character >> 6 & 63))
            out[2] = <uint8_t>(0x80 | (character & 63))
        out += width_of(character)


cdef inline int name_order(SignedField* one, SignedField* other) noexcept nogil:
    """Below 0, 0 or above 0, as the name of one is before, equal to or behind another."""
    cdef Py_ssize_t size = min(one.name_size, other.name_size)
    cdef int order = <int>one.name[0] - <int>other.name[0] if size else 0
    if order == 0:
        order = memcmp(one.name, other.name, size)
    if order == 0:
        order = (one.name_size > other.name_size) - (one.name_size < other.name_size)
    return order


cdef bint sort_fields(SignedField* found, Py_ssize_t count, SignedField** sorted) noexcept nogil:
    """Sort fields by name; False if a name is given twice."""
    cdef SignedField* field
    cdef Py_ssize_t index, place
    cdef int order
    for index in range(count):
        field = &found[index]
        place = index
        while place:
            order = name_order(sorted[place - 1], field)
            if order == 0:
                return False
            if order < 0:
                break
            sorted[place] = sorted[place - 1]
            place -= 1
        sorted[place] = field
    return True


cdef object signed_parts(SignedField* found, Py_ssize_t count, tuple wanted):
    """The SignedHeader of some fields; NotImplemented for -1 of them, and for a name given twice."""
    cdef SignedField* sorted[SIGNED_MAX]
    cdef SignedField* field
    cdef SignedField* user = NULL
    cdef SignedField* proof = NULL
    cdef Py_ssize_t size = 0, index
    cdef bytes text, signature = b""
    cdef list values = []
    if count < 0 or not sort_fields(found, count, sorted):
        return NotImplemented
    for index in range(count):
        field = sorted[index]
        if is_name(field.name, field.name_size, _UNSIGNED_ONCE):
            return NotImplemented
        if is_name(field.name, field.name_size, _SIGNATURE):
            proof = field
            continue
        if is_name(field.name, field.name_size, _ACCESS_KEY):
            user = field
        field.at = size
        size += field.size
    text = PyBytes_FromStringAndSize(NULL, size)
    for index in range(count):
        if sorted[index] != proof:
            write_value(<uint8_t*>PyBytes_AS_STRING(text) + sorted[index].at, sorted[index])
    if proof != NULL:
        signature = PyBytes_FromStringAndSize(NULL, proof.size)
        write_value(<uint8_t*>PyBytes_AS_STRING(signature), proof)
    for name in wanted:
        field = field_of(found, count, name)
        if field == NULL:
            values.append(None)
        else:
            values.append(value_of(field, proof, text, signature))
    key = None if user == NULL else value_of(user, proof, text, signature)
    return _SignedHeader(text, key, signature, tuple(values))


cdef SignedField* field_of(SignedField* found, Py_ssize_t count, str name) except? NULL:
    """The field of a name, or NULL."""
    cdef Py_ssize_t size, index
    cdef const char* at = PyUnicode_AsUTF8AndSize(name, &size)
    for index in range(count):
        if found[index].name_size == size and memcmp(found[index].name, at, size) == 0:
            return &found[index]
    return NULL


cdef str value_of(SignedField* field, SignedField* proof, bytes text, bytes signature):
    if field == proof:
        return PyUnicode_DecodeUTF8(PyBytes_AS_STRING(signature), field.size, NULL)
    return PyUnicode_DecodeUTF8(PyBytes_AS_STRING(text) + field.at, field.size, NULL)


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


@cython.boundscheck(True)
def link_entries(slots, hashes, positions, times, int64_t begin_ms, int32_t first):
    """Entries numbered from `first` on, to which the slots then lead, and how many are new."""
    cdef Py_buffer view
    cdef list codes = listed(hashes), starts = listed(positions), stored = listed(times)
    cdef Py_ssize_t count = len(codes), slot_count
    cdef bytes rows
    cdef uint8_t* row
    cdef uint8_t* slot
    cdef int64_t stored_ms
    cdef int32_t code, before, number = first, used = 0
    if not len(starts) == len(stored) == count or count >= <int64_t>INT32_MAX - first:
        return NotImplemented
    rows = PyBytes_FromStringAndSize(NULL, count * INDEX_ENTRY_SIZE)
    row = <uint8_t*>PyBytes_AS_STRING(rows)
    PyObject_GetBuffer(slots, &view, PyBUF_WRITABLE)
    try:
        slot_count = view.len // 4
        if slot_count == 0:
            return NotImplemented
        for index in range(count):
            code = <int32_t>codes[index]
            slot = <uint8_t*>view.buf + 4 * (code % slot_count)
            before = <int32_t>load4(slot)
            if not 0 < before < number:
                before = 0
                used += 1
            store4(slot, number)
            stored_ms = <int64_t>stored[index]
            store4(row, code)
            store8(row + 4, <int64_t>starts[index])
            store4(row + 12, seconds_between(begin_ms, stored_ms))
            store4(row + 16, before)
            row += INDEX_ENTRY_SIZE
            number += 1
    finally:
        PyBuffer_Release(&view)
    return rows, used


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
    cdef const uint8_t* topic_at
    cdef const uint8_t* known = NULL
    cdef Py_ssize_t size, total, fixed, width, born_size, topic_size, text_size, known_size = -1
    cdef Py_ssize_t room, count = 0
    cdef uint32_t magic, sys_flag
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
            total, magic, sys_flag = <int32_t>load4(head), load4(head + 4), load4(head + 36)
            if (
                <int64_t>load8(head + 28) != position or not RECORD_SIZE_MIN <= total <= limit - at
                or (magic != MAGIC_V1 and magic != MAGIC_V2)
            ):
                break
            if sys_flag & 4 or sys_flag & 128:  # prepared, rolled back or a batch: no entry
                break
            born_size, width = 20 if sys_flag & 16 else 8, 1 if magic == MAGIC_V1 else 2
            fixed = RECORD_FIXED + born_size + (20 if sys_flag & 32 else 8)
            if fixed + width + 2 > total:
                break
            size = <int32_t>load4(head + fixed - 4)
            if not 0 <= size <= total - fixed - width - 2:
                break
            topic_at = head + fixed + size
            topic_size = topic_at[0] if width == 1 else <Py_ssize_t>(topic_at[0] << 8 | topic_at[1])
            topic_at += width
            text_size = total - fixed - size - width - topic_size - 2
            if (
                text_size < 0
                or <Py_ssize_t>(topic_at[topic_size] << 8 | topic_at[topic_size + 1]) != text_size
                or is_name(topic_at, topic_size, _SCHEDULE_TOPIC)
            ):
                break
            body = PyBytes_FromStringAndSize(<char*>head + fixed, size)
            if <uint32_t>crc32(body) & 0x7FFFFFFF != load4(head + 8):
                break
            code = 0
            if find_value(topic_at + topic_size + 2, text_size, _TAGS_START, 0, &tag):
                if not is_ascii(tag.at, tag.size):
                    break
                code = ascii_hash(tag.at, tag.size, 0)
            queue_id, offset = <int32_t>load4(head + 12), <int64_t>load8(head + 20)
            if (
                group < 0 or queue_id != known_id or topic_size != known_size
                or memcmp(known, topic_at, topic_size) != 0
            ):
                name = PyBytes_FromStringAndSize(NULL, 4 + topic_size)
                memcpy(PyBytes_AS_STRING(name), head + 12, 4)
                memcpy(PyBytes_AS_STRING(name) + 4, topic_at, topic_size)
                number = numbers.get(name)
                if number is None:
                    group = <int32_t>len(group_topics)
                    topic = PyBytes_FromStringAndSize(<char*>topic_at, topic_size)
                    numbers[name] = group
                    group_topics.append(topic)
                    group_ids.append(queue_id)
                    groups[group].first, groups[group].count = offset, 0
                else:
                    group = <int32_t>number
                    topic = <bytes>group_topics[group]
                known, known_size, known_id = topic_at, topic_size, queue_id
            if (
                offset < groups[group].first
                or <uint64_t>offset - <uint64_t>groups[group].first != <uint64_t>groups[group].count
            ):
                break
            groups[group].count += 1
            rows[count].position, rows[count].size = position, <int32_t>total
            rows[count].tag_code, rows[count].group = code, group
            positions.append(position)
            sizes.append(total)
            topics.append(topic)
            texts.append(PyBytes_FromStringAndSize(<char*>topic_at + topic_size + 2, text_size))
            times.append(<int64_t>load8(head + 48 + born_size))
            count += 1
            at += total
            position += total
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


# -- Arrow columns to batch bodies ---------------------------------------------------------------

cdef struct Slice:
    const uint8_t* at
    Py_ssize_t size


cdef class BinaryColumn:
    """An Arrow array of type binary: where each value is, and which values are null.

    TypeError for another array. pyarrow checks only the first and the last offset, so each value is
    compared with the data when it is read.
    """

    cdef Py_buffer[3] views     # validity bitmap, offsets, data
    cdef bint[3] held
    cdef Py_ssize_t offset
    cdef const uint8_t* data
    cdef Py_ssize_t data_size
    cdef readonly Py_ssize_t count

    def __cinit__(self, column):
        self.offset, self.count = column.offset, len(column)
        buffers = column.buffers() if str(column.type) == "binary" else []
        if len(buffers) != 3 or buffers[1] is None:
            raise TypeError("not a binary column")
        for index in range(3):
            if buffers[index] is not None and (index or column.null_count):
                PyObject_GetBuffer(buffers[index], &self.views[index], PyBUF_SIMPLE)
                self.held[index] = True
        if (
            self.offset < 0 or self.views[1].len // 4 - 1 - self.offset < self.count
            or self.held[0] and self.views[0].len * 8 - self.offset < self.count
        ):
            raise ValueError("a binary column has a buffer that is too short")
        self.data = chars(b"")  # without data no value has a byte, but all have an address
        if self.held[2] and self.views[2].len:
            self.data, self.data_size = <const uint8_t*>self.views[2].buf, self.views[2].len

    def __dealloc__(self):
        for index in range(3):
            if self.held[index]:
                PyBuffer_Release(&self.views[index])

    cdef inline Py_ssize_t edge(self, Py_ssize_t row) noexcept nogil:
        cdef int32_t edge
        # Copied: the buffer may begin at any address.
        memcpy(&edge, <const char*>self.views[1].buf + 4 * (self.offset + row), 4)
        return edge

    cdef inline Slice value(self, Py_ssize_t row) noexcept nogil:
        """The value of a row; a null one has no bytes. The size is -1 for one beyond the data."""
        cdef Slice found
        cdef Py_ssize_t bit = self.offset + row, start = self.edge(row), end = self.edge(row + 1)
        if self.held[0] and not (<const uint8_t*>self.views[0].buf)[bit >> 3] >> (bit & 7) & 1:
            found.at, found.size = self.data, 0
        elif 0 <= start <= end <= self.data_size:
            found.at, found.size = self.data + start, end - start
        else:
            found.at, found.size = self.data, -1
        return found

    cdef inline Slice checked(self, Py_ssize_t row) noexcept nogil:
        """The value of a row of a column without nulls, after `value` has found it in the data."""
        cdef Py_ssize_t start = self.edge(row)
        return Slice(self.data + start, self.edge(row + 1) - start)

    cdef Slice whole(self):
        """The bytes from the first value to the last; values between may still lie elsewhere."""
        cdef Py_ssize_t start = self.edge(0), end = self.edge(self.count)
        if not 0 <= start <= end <= self.data_size:
            raise beyond_data()
        return Slice(self.data + start, end - start)


cdef object beyond_data():
    """The error for a malformed column: the Python form would let Arrow follow its offsets."""
    return ValueError("a binary column has values beyond its data")


cdef inline bint has_separator(const uint8_t* at, Py_ssize_t size) noexcept nogil:
    cdef uint8_t seen = 0
    cdef Py_ssize_t index
    for index in range(size):
        seen |= <uint8_t>(at[index] - 1) < 2
    return seen


def join_properties(names, columns):
    """Offsets and bytes of the property text of each row, from a binary column for each name."""
    cdef list sources, starts = [<bytes?>name + b"\x01" for name in names]
    cdef Py_ssize_t count, size = 0, start_size, index, place
    cdef BinaryColumn column
    cdef bytes start, edges, data
    cdef int32_t* edge
    cdef uint8_t* begun
    cdef uint8_t* at
    cdef Slice value
    cdef const uint8_t* start_at
    try:
        sources = [BinaryColumn(each) for each in columns]
    except TypeError:
        return NotImplemented
    if not sources or len(sources) != len(starts):
        return NotImplemented
    count = (<BinaryColumn>sources[0]).count
    for column, start in zip(sources, starts):
        if column.count != count or not count:
            return NotImplemented
        size += column.whole().size + count * (PyBytes_GET_SIZE(start) + 1)
    if size > 0x7FFFFFFF:
        return NotImplemented
    edges = PyBytes_FromStringAndSize(NULL, 4 * (count + 1))
    data = PyBytes_FromStringAndSize(NULL, size)
    edge, at = <int32_t*>PyBytes_AS_STRING(edges), <uint8_t*>PyBytes_AS_STRING(data)
    begun = at
    edge[0] = 0
    for index in range(count):
        for place in range(len(sources)):
            column, start = <BinaryColumn>sources[place], <bytes>starts[place]
            value = column.value(index)
            if not value.size:
                continue
            start_at, start_size = chars(start), PyBytes_GET_SIZE(start)
            if value.size < 0 or value.size > begun + size - at - start_size - 1:
                raise beyond_data()
            if has_separator(value.at, value.size):
                return NotImplemented
            memcpy(at, start_at, start_size)
            memcpy(at + start_size, value.at, value.size)
            at += start_size + value.size
            at[0] = 2
            at += 1
        edge[index + 1] = <int32_t>(at - begun)
    memset(at, 0, begun + size - at)  # the unused end must not hold other data of the process
    return edges, data


cdef bint is_array_of(array, Py_ssize_t size):
    """Whether an array of numpy has integers of this size in sequence, in this machine's order."""
    dtype = array.dtype
    return (
        dtype.kind == "i" and dtype.itemsize == size and dtype.isnative
        and array.ndim == 1 and array.flags.c_contiguous and array.flags.aligned
    )


def numbered_texts(bytes prefix, int64_t first, Py_ssize_t count):
    """Offsets and bytes of texts, each of which is a prefix and one of consecutive numbers."""
    cdef Py_ssize_t prefix_size = PyBytes_GET_SIZE(prefix), index, place, digits, width = 1
    cdef bytes edges, data
    cdef int32_t* edge
    cdef uint8_t* begun
    cdef uint8_t* at
    cdef uint64_t left, last = <uint64_t>first + count
    if first < 0 or count <= 0 or first > INT64_MAX - count:
        return NotImplemented
    while last >= 10:
        last //= 10
        width += 1
    if count > 0x7FFFFFFF // (prefix_size + width):
        return NotImplemented
    edges = PyBytes_FromStringAndSize(NULL, 4 * (count + 1))
    data = PyBytes_FromStringAndSize(NULL, (prefix_size + width) * count)
    edge, at = <int32_t*>PyBytes_AS_STRING(edges), <uint8_t*>PyBytes_AS_STRING(data)
    begun = at
    edge[0] = 0
    for index in range(count):
        memcpy(at, chars(prefix), prefix_size)
        at += prefix_size
        digits, left = 1, first + index
        while left >= 10:
            left //= 10
            digits += 1
        at += digits
        left = first + index
        for place in range(1, digits + 1):
            at[-place] = <uint8_t>(48 + left % 10)
            left //= 10
        edge[index + 1] = <int32_t>(at - begun)
    memset(at, 0, begun + (prefix_size + width) * count - at)
    return edges, data


def batch_body(bodies, texts, flags, rows):
    """The body of a batch of these rows, from binary columns and arrays of 32 and of 64 bits."""
    cdef BinaryColumn body_column, text_column
    cdef Py_buffer flag_view, row_view
    cdef Py_ssize_t count, size = 0, index, total
    cdef const int64_t* row
    cdef const int32_t* flag
    cdef bytes batch
    cdef uint8_t* at
    cdef Slice body, text
    try:
        body_column, text_column = BinaryColumn(bodies), BinaryColumn(texts)
    except TypeError:
        return NotImplemented
    if body_column.held[0] or text_column.held[0] or body_column.count != text_column.count:
        return NotImplemented
    if not is_array_of(flags, 4) or not is_array_of(rows, 8):
        return NotImplemented
    PyObject_GetBuffer(flags, &flag_view, PyBUF_SIMPLE)
    try:
        PyObject_GetBuffer(rows, &row_view, PyBUF_SIMPLE)
        try:
            count, row, flag = row_view.len // 8, <int64_t*>row_view.buf, <int32_t*>flag_view.buf
            if flag_view.len != 4 * body_column.count:
                return NotImplemented
            for index in range(count):
                if not 0 <= row[index] < body_column.count:
                    return NotImplemented
                body, text = body_column.value(row[index]), text_column.value(row[index])
                if body.size < 0 or text.size < 0:
                    raise beyond_data()
                size += BATCH_HEAD + 2 + body.size + text.size
                if text.size > PROPERTIES_SIZE_MAX or size > 0x7FFFFFFF:
                    return NotImplemented
            batch = PyBytes_FromStringAndSize(NULL, size)
            at = <uint8_t*>PyBytes_AS_STRING(batch)
            for index in range(count):
                body, text = body_column.checked(row[index]), text_column.checked(row[index])
                total = BATCH_HEAD + 2 + body.size + text.size
                store4(at, <uint32_t>total)
                store8(at + 4, 0)
                store4(at + 12, <uint32_t>flag[row[index]])
                store4(at + 16, <uint32_t>body.size)
                memcpy(at + BATCH_HEAD, body.at, body.size)
                store2(at + BATCH_HEAD + body.size, <uint32_t>text.size)
                memcpy(at + BATCH_HEAD + body.size + 2, text.at, text.size)
                at += total
            return batch
        finally:
            PyBuffer_Release(&row_view)
    finally:
        PyBuffer_Release(&flag_view)


# -- records to Arrow columns --------------------------------------------------------------------

def record_positions(block):
    """The positions of a block's records as 64-bit numbers; damage is left to the Python form."""
    cdef Py_buffer view
    cdef Py_ssize_t at = 0, count = 0, last, total
    cdef const uint8_t* data
    cdef bytes positions
    cdef int64_t* position
    PyObject_GetBuffer(block, &view, PyBUF_SIMPLE)
    try:
        data, last = <const uint8_t*>view.buf, view.len - RECORD_SIZE_MIN
        positions = PyBytes_FromStringAndSize(NULL, 8 * (view.len // RECORD_SIZE_MIN))
        position = <int64_t*>PyBytes_AS_STRING(positions)
        with nogil:
            while at <= last:
                total = <int32_t>load4(data + at)
                if total < RECORD_SIZE_MIN:
                    break
                position[count] = at
                at += total
                count += 1
        return positions[:8 * count] if at == view.len else NotImplemented
    finally:
        PyBuffer_Release(&view)


cdef class Int64Array:
    """A numpy array of 64-bit numbers, whose items need not be adjacent."""

    cdef Py_buffer view
    cdef bint held

    def __cinit__(self, array):
        dtype = array.dtype
        if dtype.kind != "i" or dtype.itemsize != 8 or not dtype.isnative or array.ndim != 1:
            raise ValueError("not an array of 64-bit numbers")
        PyObject_GetBuffer(array, &self.view, PyBUF_STRIDED_RO)
        self.held = True
        if self.view.itemsize != 8 or self.view.ndim != 1:
            raise ValueError("not an array of 64-bit numbers")

    def __dealloc__(self):
        if self.held:
            PyBuffer_Release(&self.view)

    cdef inline int64_t at(self, Py_ssize_t index) noexcept nogil:
        cdef int64_t number
        # Copied: items of an array of structs may be at any address.
        memcpy(&number, <const char*>self.view.buf + index * self.view.strides[0], 8)
        return number


cdef bint has_candidate(
    const uint8_t* at, Py_ssize_t count, uint8_t first, uint8_t second, uint8_t last, Py_ssize_t size
) noexcept nogil:
    """Whether any of the places from `at` on has these bytes of a text of `size` bytes.

    A loop without branches, which compilers turn into comparisons of many places at once.
    """
    cdef uint8_t found = 0
    cdef Py_ssize_t index
    for index in range(count):
        found |= (
            <uint8_t>(at[index] == first)
            & <uint8_t>(at[index + 1] == second)
            & <uint8_t>(at[index + size - 1] == last)
        )
    return found


def contains(data, bytes wanted):
    """Whether a text is anywhere in the data."""
    cdef Py_buffer view
    cdef const uint8_t* begin
    cdef const uint8_t* text = chars(wanted)
    cdef Py_ssize_t size = PyBytes_GET_SIZE(wanted), at = 0, places, count, index
    if size < 2:
        return NotImplemented
    PyObject_GetBuffer(data, &view, PyBUF_SIMPLE)
    try:
        begin, places = <const uint8_t*>view.buf, view.len - size + 1
        while at < places:
            count = min(places - at, SEARCH_STEP)
            if has_candidate(begin + at, count, text[0], text[1], text[size - 1], size):
                for index in range(at, at + count):
                    if memcmp(begin + index, text, size) == 0:
                        return True
            at += count
    finally:
        PyBuffer_Release(&view)
    return False


def cut_slices(block, starts, ends):
    """Offsets and bytes of the column of a block's slices."""
    cdef Py_buffer view
    cdef Int64Array first, last
    cdef Py_ssize_t count, index, size = 0
    cdef int64_t start, end
    cdef bytes edges, data
    cdef int32_t* edge
    cdef uint8_t* at
    cdef bint is_inside = True
    try:
        first, last = Int64Array(starts), Int64Array(ends)
    except ValueError:
        return NotImplemented
    count = first.view.shape[0]
    if last.view.shape[0] != count or count > INT32_MAX:
        return NotImplemented
    PyObject_GetBuffer(block, &view, PyBUF_SIMPLE)
    try:
        with nogil:
            for index in range(count):
                start, end = first.at(index), last.at(index)
                if not 0 <= start <= end <= view.len:
                    is_inside = False
                    break
                size += end - start
                if size > 0x7FFFFFFF:
                    is_inside = False
                    break
        if not is_inside:
            return NotImplemented
        edges = PyBytes_FromStringAndSize(NULL, 4 * (count + 1))
        data = PyBytes_FromStringAndSize(NULL, size)
        edge, at = <int32_t*>PyBytes_AS_STRING(edges), <uint8_t*>PyBytes_AS_STRING(data)
        # Another thread may write to the arrays meanwhile: the limits hold here, too.
        with nogil:
            edge[0] = 0
            for index in range(count):
                start, end = first.at(index), last.at(index)
                if not 0 <= start <= end <= view.len or end - start > size:
                    is_inside = False
                    break
                memcpy(at, <const uint8_t*>view.buf + start, end - start)
                at += end - start
                size -= end - start
                edge[index + 1] = edge[index] + <int32_t>(end - start)
        return (edges, data) if is_inside and not size else NotImplemented
    finally:
        PyBuffer_Release(&view)


def split_texts(texts):
    """Rows, names and values of property texts, or None if one is irregular."""
    cdef BinaryColumn column
    cdef Py_ssize_t count, size, left, index, pairs = 0, most = 0
    cdef const uint8_t* at
    cdef const uint8_t* end
    cdef const uint8_t* middle
    cdef const uint8_t* stop
    cdef bytes rows, name_edges, names, value_edges, values
    cdef int32_t* row
    cdef int32_t* name_edge
    cdef int32_t* value_edge
    cdef uint8_t* name
    cdef uint8_t* value
    cdef Slice text
    cdef bint is_even = True, is_inside = True
    try:
        column = BinaryColumn(texts)
    except TypeError:
        return NotImplemented
    if column.held[0]:
        return NotImplemented
    count = column.count
    text = column.whole()
    left = size = text.size
    for index in range(size):
        most += text.at[index] == 2
    rows = PyBytes_FromStringAndSize(NULL, 4 * (count + 1))
    name_edges = PyBytes_FromStringAndSize(NULL, 4 * (most + 1))
    value_edges = PyBytes_FromStringAndSize(NULL, 4 * (most + 1))
    names, values = PyBytes_FromStringAndSize(NULL, size), PyBytes_FromStringAndSize(NULL, size)
    row, name_edge = <int32_t*>PyBytes_AS_STRING(rows), <int32_t*>PyBytes_AS_STRING(name_edges)
    value_edge = <int32_t*>PyBytes_AS_STRING(value_edges)
    name, value = <uint8_t*>PyBytes_AS_STRING(names), <uint8_t*>PyBytes_AS_STRING(values)
    pairs = row[0] = name_edge[0] = value_edge[0] = 0
    with nogil:
        for index in range(count):
            text = column.value(index)
            at, end = text.at, text.at + text.size
            left -= text.size
            if text.size < 0 or left < 0:
                is_inside = False
                break
            while at < end:
                stop = <const uint8_t*>memchr(at, 2, end - at)
                middle = NULL
                if stop != NULL:
                    middle = <const uint8_t*>memchr(at, 1, stop - at)
                if (
                    middle == NULL or middle == at or middle + 1 == stop
                    or memchr(middle + 1, 1, stop - middle - 1) != NULL
                ):
                    is_even = False
                    break
                if pairs == most:
                    is_even = is_inside = False
                    break
                memcpy(name + name_edge[pairs], at, middle - at)
                memcpy(value + value_edge[pairs], middle + 1, stop - middle - 1)
                name_edge[pairs + 1] = name_edge[pairs] + <int32_t>(middle - at)
                value_edge[pairs + 1] = value_edge[pairs] + <int32_t>(stop - middle - 1)
                pairs += 1
                at = stop + 1
            if not is_even:
                break
            row[index + 1] = <int32_t>pairs
    if not is_inside:
        raise beyond_data()
    if not is_even:
        return None
    memset(name + name_edge[pairs], 0, size - name_edge[pairs])
    memset(value + value_edge[pairs], 0, size - value_edge[pairs])
    return rows, (name_edges, names), (value_edges, values)
