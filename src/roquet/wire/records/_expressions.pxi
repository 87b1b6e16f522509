# Filter expressions, evaluated on encoded properties.

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
