# Frames: whole commands in either header form.

cdef object _Command = None
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
    return command_at(chars(frame), PyBytes_GET_SIZE(frame))


def decode_whole(bytes chunk, Py_ssize_t size_max):
    """The commands of ordinary frames that fill a chunk; None for one that ends inside a frame."""
    cdef const uint8_t* start = chars(chunk)
    cdef const uint8_t* end = start + PyBytes_GET_SIZE(chunk)
    cdef const uint8_t* at = start
    cdef Py_ssize_t size
    cdef list commands = []
    while at < end:                         # a frame that is not whole costs no decoding of others
        if end - at < 4:
            return None
        size = load4(at)
        if not 4 <= size <= size_max:
            return NotImplemented
        if size > end - at - 4:
            return None
        at += 4 + size
    at = start
    while at < end:
        size = load4(at)
        command = command_at(at + 4, size)
        if command is NotImplemented:
            return NotImplemented
        commands.append(command)
        at += 4 + size
    return commands


cdef object command_at(const uint8_t* at, Py_ssize_t size):
    """The command of an ordinary frame, given without its length word."""
    cdef Py_ssize_t end
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


cdef struct JsonHead:
    int64_t[4] numbers          # by key, up to FLAG
    Span[3] texts               # by key, from LANGUAGE on, with quotes or braces
    int seen                    # a bit for each key


cdef bint read_json_head(const uint8_t* at, const uint8_t* end, JsonHead* head) noexcept nogil:
    """Read a JSON header as Java and our clients write it: ASCII, without spaces."""
    cdef const uint8_t* start
    cdef int key
    memset(head, 0, sizeof(JsonHead))
    if end - at < 2 or at[0] != c"{":
        return False
    while at[0] != c"}":
        at += 1                             # behind the brace or a comma
        start = at + 1
        at = text_end(at, end, False)
        if at == NULL or at == end or at[0] != c":":
            return False
        key = key_of(start, at - start - 1)
        if key == OTHER_KEY or head.seen & 1 << key:
            return False
        head.seen |= 1 << key
        start = at + 1
        if key < LANGUAGE:
            at = read_header_number(start, end, &head.numbers[key])
        elif key == FIELDS:
            at = object_end(start, end)
        else:
            at = text_end(start, end, False)
        if at == NULL or at == end or (at[0] != c"," and at[0] != c"}"):
            return False
        if LANGUAGE <= key <= FIELDS:
            head.texts[key - LANGUAGE] = Span(start, at - start)
    return at + 1 == end


cdef object language_of(JsonHead* head):
    cdef Span text = head.texts[0]
    if not head.seen & 1 << LANGUAGE:
        return _LANGUAGE_BY_CODE[0]
    return _LANGUAGES.get(PyBytes_FromStringAndSize(<char*>text.at + 1, text.size - 2), _OTHER)


cdef object json_command(
    const uint8_t* begin, const uint8_t* at, const uint8_t* end, const uint8_t* stop
):
    """The command of an ordinary JSON header."""
    cdef JsonHead head
    cdef Span text
    if not read_json_head(at, end, &head):
        return NotImplemented
    remark, fields = None, b"{}"
    if head.seen & 1 << REMARK:
        text = head.texts[1]
        remark = PyUnicode_DecodeASCII(<char*>text.at + 1, text.size - 2, NULL)
    if head.seen & 1 << FIELDS:
        text = head.texts[2]
        fields = PyBytes_FromStringAndSize(<char*>text.at, text.size)
    return _Command(
        head.numbers[CODE], language_of(&head), head.numbers[VERSION], head.numbers[OPAQUE],
        head.numbers[FLAG], remark, Raw(fields),
        PyBytes_FromStringAndSize(<char*>end, stop - end), 0,
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


cdef object whole_frame(const uint8_t* header, Py_ssize_t size, bint is_json, object body):
    """The frame of a header and a body; NotImplemented for a body that is too long."""
    cdef Py_buffer view
    cdef bytes frame
    cdef uint8_t* at
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


def encode_frame(
    value, codec, serialize_type, code, flag, opaque, language, version, remark, body
):
    """The frame of a call or reply whose header is short and has ordinary texts."""
    cdef uint8_t[HEADER_BUFFER] header
    cdef Out out
    cdef bint is_json = serialize_type == 0, is_whole
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
    return whole_frame(header, out.at - header, is_json, body)
