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
    PyBUF_READ,
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
from cpython.memoryview cimport PyMemoryView_FromMemory
from cpython.ref cimport Py_INCREF
from cpython.unicode cimport PyUnicode_DecodeASCII, PyUnicode_DecodeUTF8
from libc.stdint cimport INT32_MAX, INT64_MAX, int16_t, int32_t, int64_t, uint8_t, uint32_t, uint64_t
from libc.string cimport memchr, memcmp, memcpy, memset

from array import array
from zlib import crc32

from msgspec import Raw

from roquet.model import properties as names
from roquet.wire import codes
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

include "_numbers.pxi"
include "_sha1.pxi"
include "_batches.pxi"
include "_properties.pxi"
include "_plain_batches.pxi"
include "_records.pxi"
include "_expressions.pxi"
include "_headers.pxi"
include "_frames.pxi"
include "_sends.pxi"
include "_pulls.pxi"
include "_arrow.pxi"
