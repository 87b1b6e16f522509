# Header fields: pairs of the compact form, and the parts that a signature covers.

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


# -- signed headers ------------------------------------------------------------------------------

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


cdef enum:
    SIGNED_MAX = 64             # fields; Apache's requests have up to 30
    SIGNATURE_SIZE = 28         # of a digest in base64
    HASHED_MAX = 65536          # bytes that are signed and are copied to be hashed here

cdef object _PackedFields = None
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


def signed_by(fields, body, dict keys not None, tuple wanted not None):
    """Who signed ASCII names and texts that are all given once, and the values of `wanted` names."""
    global _PackedFields
    cdef SignedField[SIGNED_MAX] found
    cdef Py_buffer view
    cdef Py_ssize_t count
    cdef bytes pairs
    if _PackedFields is None:
        from roquet.wire.compact import PackedFields as _PackedFields  # it imports this module
    if not PyBytes_CheckExact(body):
        body = bytes(body)
    if type(fields) is _PackedFields:
        pairs = fields.pairs
        count = pair_fields(found, chars(pairs), chars(pairs) + PyBytes_GET_SIZE(pairs))
        return checked_fields(found, count, body, keys, wanted)
    if type(fields) is not Raw:
        return NotImplemented
    PyObject_GetBuffer(fields, &view, PyBUF_SIMPLE)
    try:
        count = json_fields(found, <const uint8_t*>view.buf, <const uint8_t*>view.buf + view.len)
        return checked_fields(found, count, body, keys, wanted)
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


cdef object checked_fields(
    SignedField* found, Py_ssize_t count, bytes body, dict keys, tuple wanted
):
    """The answer for some fields; NotImplemented as from `signer_of`."""
    cdef SignedField* field
    cdef list values = []
    name = signer_of(found, count, Span(chars(body), PyBytes_GET_SIZE(body)), keys)
    if name is None or name is NotImplemented:
        return name
    for wanted_name in wanted:
        field = field_of(found, count, wanted_name)
        values.append(None if field == NULL else text_of(field))
    return name, tuple(values)


cdef object signer_of(SignedField* found, Py_ssize_t count, Span body, dict keys):
    """The access key whose key among `keys` has signed some fields and a body; None without one.

    NotImplemented for -1 fields, for a name given twice, and for fields whose signature depends on
    the client's version.
    """
    cdef SignedField* sorted[SIGNED_MAX]
    cdef SignedField* field
    cdef SignedField* user = NULL
    cdef SignedField* proof = NULL
    cdef Py_ssize_t size = 0, begin = 0, index
    cdef uint8_t* at
    cdef bytes text
    cdef bint is_hashed_here
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
    if user == NULL or proof == NULL:
        return None
    name = text_of(user)
    key = keys.get(name)
    if key is None:
        return None
    is_hashed_here = _HAS_SHA1 and size + body.size <= HASHED_MAX
    if is_hashed_here:
        begin = BLOCK_SIZE
        text = PyBytes_FromStringAndSize(NULL, padded_size(begin + size + body.size))
    else:
        text = PyBytes_FromStringAndSize(NULL, size)
    at = <uint8_t*>PyBytes_AS_STRING(text) + begin
    for index in range(count):
        if sorted[index] != proof:
            write_value(at + sorted[index].at, sorted[index])
    if not is_hashed_here:
        return name if has_hashlib_made(key.inner, key.outer, text, body, proof) else None
    memcpy(at + size, body.at, body.size)
    return name if is_made(key.blocks, at - begin, begin + size + body.size, proof) else None


cdef bint is_made(tuple blocks, uint8_t* text, Py_ssize_t size, SignedField* proof) except -1:
    """Whether a signature is that of a text: it has room for a block before it, and to be padded."""
    cdef uint8_t[2 * BLOCK_SIZE] outer
    cdef uint8_t[DIGEST_SIZE] digest
    cdef bytes inner_block = blocks[0], outer_block = blocks[1]
    memcpy(text, chars(inner_block), BLOCK_SIZE)
    memcpy(outer, chars(outer_block), BLOCK_SIZE)
    sha1(outer + BLOCK_SIZE, text, size)
    sha1(digest, outer, BLOCK_SIZE + DIGEST_SIZE)
    return is_signature(proof, digest)


cdef bint has_hashlib_made(
    object inner, object outer, bytes text, Span body, SignedField* proof
) except -1:
    """Whether a signature is that of a text and a body; `inner` and `outer` are a key's.

    SHA-1 in plain C would take five times as long as hashlib's, which is OpenSSL's.
    """
    cdef bytes digest
    inner, outer = inner.copy(), outer.copy()
    inner.update(text)
    inner.update(PyMemoryView_FromMemory(<char*>body.at, body.size, PyBUF_READ))
    outer.update(inner.digest())
    digest = outer.digest()
    return PyBytes_GET_SIZE(digest) == DIGEST_SIZE and is_signature(proof, chars(digest))


cdef bint is_signature(SignedField* proof, const uint8_t* digest) noexcept:
    """Whether a signature is this digest; it takes the same time for any other."""
    cdef uint8_t[SIGNATURE_SIZE] expected
    cdef uint8_t[SIGNATURE_SIZE] received
    cdef uint8_t difference = 0
    cdef Py_ssize_t index
    if proof.size != SIGNATURE_SIZE:
        return False
    write_base64(expected, digest)
    write_value(received, proof)
    for index in range(SIGNATURE_SIZE):
        difference |= expected[index] ^ received[index]
    return difference == 0


cdef void write_base64(uint8_t* out, const uint8_t* digest) noexcept nogil:
    """Write a SHA-1 digest in base64: six groups of three bytes, and one of two."""
    cdef const uint8_t* digits = (
        b"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/"
    )
    cdef uint32_t group
    cdef Py_ssize_t index, shift
    for index in range(0, DIGEST_SIZE, 3):
        group = digest[index] << 16 | digest[index + 1] << 8
        if index + 2 < DIGEST_SIZE:
            group |= digest[index + 2]
        for shift in range(4):
            out[shift] = digits[group >> 18 - 6 * shift & 63]
        out += 4
    (out - 1)[0] = c"="


cdef SignedField* field_of(SignedField* found, Py_ssize_t count, str name) except? NULL:
    """The field of a name, or NULL."""
    cdef Py_ssize_t size, index
    cdef const char* at = PyUnicode_AsUTF8AndSize(name, &size)
    for index in range(count):
        if found[index].name_size == size and memcmp(found[index].name, at, size) == 0:
            return &found[index]
    return NULL


cdef str text_of(SignedField* field):
    if field.size == field.value_size:
        return PyUnicode_DecodeUTF8(<const char*>field.value, field.size, NULL)
    return value_of(field).decode()


cdef bytes value_of(SignedField* field):
    cdef bytes value = PyBytes_FromStringAndSize(NULL, field.size)
    write_value(<uint8_t*>PyBytes_AS_STRING(value), field)
    return value
