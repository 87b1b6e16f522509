# Numbers of two to eight bytes, big-endian, and lists whose items are set one by one.

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
