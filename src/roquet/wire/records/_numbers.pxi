# Numbers of two to eight bytes, big-endian, checksums, and lists whose items are set one by one.

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


# -- checksums -----------------------------------------------------------------------------------

cdef uint32_t[8][256] _CRC      # by distance from the end of eight bytes, and by byte


cdef void fill_crc() noexcept:
    cdef uint32_t crc
    cdef int number, bit, distance
    for number in range(256):
        crc = number
        for bit in range(8):
            crc = crc >> 1 ^ (0xEDB88320 if crc & 1 else 0)
        _CRC[0][number] = crc
    for distance in range(1, 8):
        for number in range(256):
            crc = _CRC[distance - 1][number]
            _CRC[distance][number] = crc >> 8 ^ _CRC[0][crc & 255]


fill_crc()


cdef inline uint32_t load4_little(const uint8_t* at) noexcept nogil:
    return at[0] | (<uint32_t>at[1] << 8) | (<uint32_t>at[2] << 16) | (<uint32_t>at[3] << 24)


cdef uint32_t crc_of(const uint8_t* at, Py_ssize_t size) noexcept nogil:
    """CRC-32 of bytes, as zlib computes it: a call of zlib would need an object for each body."""
    cdef uint32_t crc = 0xFFFFFFFF, high
    while size >= 8:
        crc ^= load4_little(at)
        high = load4_little(at + 4)
        crc = (
            _CRC[7][crc & 255] ^ _CRC[6][crc >> 8 & 255] ^ _CRC[5][crc >> 16 & 255]
            ^ _CRC[4][crc >> 24] ^ _CRC[3][high & 255] ^ _CRC[2][high >> 8 & 255]
            ^ _CRC[1][high >> 16 & 255] ^ _CRC[0][high >> 24]
        )
        at += 8
        size -= 8
    while size > 0:
        crc = crc >> 8 ^ _CRC[0][(crc ^ at[0]) & 255]
        at += 1
        size -= 1
    return ~crc
