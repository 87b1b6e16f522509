# Arrow columns: to bodies of batches, and from records.

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

cdef struct RecordFields:
    int64_t start, queue_offset, position, born_ms, stored_ms
    int64_t store_host_at, body_at, body_end, topic_at, topic_end
    int32_t total, queue_id, flag, sys_flag


cdef RecordFields fields_at(const uint8_t* data, Py_ssize_t at, const Parts* parts) noexcept nogil:
    """The fields of the record at a place, in which `find_parts` has found the parts."""
    cdef RecordFields fields
    cdef const uint8_t* head = data + at
    cdef const uint8_t* stored = head + 48 + parts.born_size
    fields.start, fields.total = at, <int32_t>parts.total
    fields.queue_id, fields.flag = <int32_t>load4(head + 12), <int32_t>load4(head + 16)
    fields.queue_offset, fields.position = <int64_t>load8(head + 20), <int64_t>load8(head + 28)
    fields.sys_flag, fields.born_ms = <int32_t>parts.sys_flag, <int64_t>load8(head + 40)
    fields.stored_ms, fields.store_host_at = <int64_t>load8(stored), stored + 8 - data
    fields.body_at = parts.body - data
    fields.body_end = fields.body_at + parts.body_size
    fields.topic_at = parts.topic - data
    fields.topic_end = fields.topic_at + parts.topic_size
    return fields


def record_fields(block):
    """The fields of a block's records; damage is left to the Python form."""
    cdef Py_buffer view
    cdef Py_ssize_t at = 0, count = 0, left
    cdef const uint8_t* data
    cdef bytes found
    cdef RecordFields fields
    cdef uint8_t* begin
    cdef Parts parts
    PyObject_GetBuffer(block, &view, PyBUF_SIMPLE)
    try:
        data, left = <const uint8_t*>view.buf, view.len
        # Room for the most there may be, and a copy of what there is: to count the records first
        # would cost more, since each is found only by the length of the one before.
        found = PyBytes_FromStringAndSize(NULL, sizeof(RecordFields) * (left // RECORD_SIZE_MIN))
        begin = <uint8_t*>PyBytes_AS_STRING(found)
        with nogil:
            while left >= RECORD_SIZE_MIN:
                if (
                    not find_parts(data + at, left, &parts)
                    or parts.topic_size > 32767 or parts.text_size > PROPERTIES_SIZE_MAX
                ):
                    break
                fields = fields_at(data, at, &parts)
                memcpy(begin + count * sizeof(RecordFields), &fields, sizeof(RecordFields))
                count += 1
                at += parts.total
                left -= parts.total
        return NotImplemented if left else found[:count * sizeof(RecordFields)]
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
