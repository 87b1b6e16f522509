# SHA-1 by the processor's own instructions: FIPS 180-4, four rounds at a time.

cdef extern from *:
    """
    #if (defined(__x86_64__) || defined(__i386__)) && (defined(__GNUC__) || defined(__clang__))
    #include <cpuid.h>
    #include <immintrin.h>

    static int sha1_is_there(void) {
        unsigned int a, b = 0, c = 0, d;
        if (!__get_cpuid(1, &a, &b, &c, &d) || !(c & bit_SSSE3) || !(c & bit_SSE4_1)) return 0;
        return __get_cpuid_count(7, 0, &a, &b, &c, &d) && (b >> 29 & 1);
    }

    /* Five groups of four rounds with one function; FIRST counts groups, W is a ring of four. */
    #define SHA1_ROUNDS(FUNCTION, FIRST)                                                          \\
        for (group = FIRST; group < FIRST + 5; group++) {                                         \\
            __m128i sum = group ? _mm_sha1nexte_epu32(e, w[group & 3])                            \\
                                : _mm_add_epi32(e, w[0]);                                         \\
            e = abcd;                                                                             \\
            abcd = _mm_sha1rnds4_epu32(abcd, sum, FUNCTION);                                      \\
            w[group & 3] = _mm_sha1msg2_epu32(                                                    \\
                _mm_xor_si128(_mm_sha1msg1_epu32(w[group & 3], w[(group + 1) & 3]),               \\
                              w[(group + 2) & 3]),                                                \\
                w[(group + 3) & 3]);                                                              \\
        }

    __attribute__((target("sha,ssse3,sse4.1")))
    static void sha1_blocks(uint32_t *state, const uint8_t *at, Py_ssize_t count) {
        const __m128i order = _mm_set_epi64x(0x0001020304050607LL, 0x08090a0b0c0d0e0fLL);
        __m128i abcd = _mm_shuffle_epi32(_mm_loadu_si128((const __m128i *)state), 0x1B);
        __m128i e = _mm_set_epi32((int)state[4], 0, 0, 0);
        for (; count > 0; count--, at += 64) {
            __m128i abcd_before = abcd, e_before = e, w[4];
            int group;
            for (group = 0; group < 4; group++)
                w[group] = _mm_shuffle_epi8(
                    _mm_loadu_si128((const __m128i *)(at + 16 * group)), order);
            SHA1_ROUNDS(0, 0)
            SHA1_ROUNDS(1, 5)
            SHA1_ROUNDS(2, 10)
            SHA1_ROUNDS(3, 15)
            e = _mm_sha1nexte_epu32(e, e_before);
            abcd = _mm_add_epi32(abcd, abcd_before);
        }
        _mm_storeu_si128((__m128i *)state, _mm_shuffle_epi32(abcd, 0x1B));
        state[4] = (uint32_t)_mm_extract_epi32(e, 3);
    }
    #else
    static int sha1_is_there(void) { return 0; }
    static void sha1_blocks(uint32_t *state, const uint8_t *at, Py_ssize_t count) {}
    #endif
    """
    bint sha1_is_there() noexcept nogil
    void sha1_blocks(uint32_t* state, const uint8_t* at, Py_ssize_t count) noexcept nogil

cdef enum:
    BLOCK_SIZE = 64
    DIGEST_SIZE = 20            # bytes of SHA-1
    DIGEST_WORDS = 5

cdef bint _HAS_SHA1 = sha1_is_there()
cdef uint32_t[DIGEST_WORDS] _SHA1_START = [
    0x67452301, 0xEFCDAB89, 0x98BADCFE, 0x10325476, 0xC3D2E1F0,
]


cdef Py_ssize_t padded_size(Py_ssize_t size) noexcept nogil:
    """Bytes of a text with what SHA-1 puts behind it: whole blocks."""
    return (size + 9 + BLOCK_SIZE - 1) // BLOCK_SIZE * BLOCK_SIZE


cdef void sha1(uint8_t* digest, uint8_t* text, Py_ssize_t size) noexcept nogil:
    """Write the digest of a text, behind which there is room to pad it."""
    cdef uint32_t[DIGEST_WORDS] state
    cdef Py_ssize_t stop = padded_size(size), index
    memset(text + size, 0, stop - size)
    text[size] = 0x80
    store8(text + stop - 8, 8 * size)
    memcpy(state, _SHA1_START, DIGEST_SIZE)
    sha1_blocks(state, text, stop // BLOCK_SIZE)
    for index in range(DIGEST_WORDS):
        store4(digest + 4 * index, state[index])
