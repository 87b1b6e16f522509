"""Self-signed certificate: a key on the curve P-256 and a certificate that vouches for nobody.

For servers whose clients ask for TLS and check no certificate. Sources: RFC 5280 and RFC 5480 for
the certificate, RFC 5915 for the key, FIPS 186-4 for curve and signature.

    certificate  SEQUENCE { content, ecdsa-with-SHA256, signature of the content }
    content      SEQUENCE { version 3, serial number, ecdsa-with-SHA256, issuer,
                            validity, subject, public key, other names }
"""

from base64 import encodebytes
from hashlib import sha256
from typing import Final

ORDER: Final = 0xFFFFFFFF00000000FFFFFFFFFFFFFFFFBCE6FAADA7179E84F3B9CAC2FC632551
"""Number of points of the curve: secrets and nonces are below it."""

_FIELD: Final = 2**256 - 2**224 + 2**192 + 2**96 - 1
_BASE: Final = (
    0x6B17D1F2E12C4247F8BCE6E563A440F277037D812DEB33A0F4A13945D898C296,
    0x4FE342E2FE1A7F9B8EE7EB4A7C0F9E162BCE33576B315ECECBB6406837BF51F5,
)
_SIZE: Final = 32
"""Bytes of a coordinate or a secret."""

_SEQUENCE: Final = 0x30
_SET: Final = 0x31
_TIME: Final = 0x18
_BITS: Final = 0x03
_OCTETS: Final = 0x04
_TEXT: Final = 0x0C
_CONTEXT: Final = 0xA0
"""Of tag 0, in the context of what holds it; others follow."""

_COMMON_NAME: Final = b"\x06\x03\x55\x04\x03"
_ALTERNATIVE_NAMES: Final = b"\x06\x03\x55\x1d\x11"
_PUBLIC_KEY: Final = b"\x06\x07\x2a\x86\x48\xce\x3d\x02\x01"
_P_256: Final = b"\x06\x08\x2a\x86\x48\xce\x3d\x03\x01\x07"
_ECDSA_SHA256: Final = b"\x30\x0a\x06\x08\x2a\x86\x48\xce\x3d\x04\x03\x02"

_FROM: Final = b"20000101000000Z"
_UNTIL: Final = b"99991231235959Z"
"""RFC 5280's time of a certificate that does not expire."""

Point = tuple[int, int]


def self_signed(name: str, secret: int, nonce: int, serial: int) -> str:
    """PEM of a certificate for `name` (64 characters at most) and this machine, and of its key.

    `secret` and `nonce` are from 1 to below `ORDER`, random, and each used once.
    """
    x, y = _times(secret, _BASE)
    public = _der(_BITS, b"\x00\x04", x.to_bytes(_SIZE), y.to_bytes(_SIZE))
    named = _der(_SEQUENCE, _der(_SET, _der(_SEQUENCE, _COMMON_NAME, _der(_TEXT, name.encode()))))
    others = _der(_SEQUENCE, _der(0x82, b"localhost"), _der(0x87, b"\x7f\x00\x00\x01"))
    content = _der(
        _SEQUENCE,
        _der(_CONTEXT, _integer(2)),
        _integer(serial),
        _ECDSA_SHA256,
        named,
        _der(_SEQUENCE, _der(_TIME, _FROM), _der(_TIME, _UNTIL)),
        named,
        _der(_SEQUENCE, _der(_SEQUENCE, _PUBLIC_KEY, _P_256), public),
        _der(
            _CONTEXT + 3,
            _der(_SEQUENCE, _der(_SEQUENCE, _ALTERNATIVE_NAMES, _der(_OCTETS, others))),
        ),
    )
    signature = _signature(content, secret, nonce)
    certificate = _der(_SEQUENCE, content, _ECDSA_SHA256, _der(_BITS, b"\x00", signature))
    key = _der(
        _SEQUENCE,
        _integer(1),
        _der(_OCTETS, secret.to_bytes(_SIZE)),
        _der(_CONTEXT, _P_256),
        _der(_CONTEXT + 1, public),
    )
    return _pem("CERTIFICATE", certificate) + _pem("EC PRIVATE KEY", key)


def _signature(content: bytes, secret: int, nonce: int) -> bytes:
    digest = int.from_bytes(sha256(content).digest())
    r = _times(nonce, _BASE)[0] % ORDER
    s = pow(nonce, -1, ORDER) * (digest + r * secret) % ORDER
    return _der(_SEQUENCE, _integer(r), _integer(s))


def _times(factor: int, point: Point) -> Point:
    """A multiple of a point; the factor is from 1 to below the order."""
    total: Point | None = None
    while factor:
        if factor & 1:
            total = point if total is None else _add(total, point)
        point = _add(point, point)
        factor >>= 1
    assert total is not None, "the factor is not 0"
    return total


def _add(one: Point, other: Point) -> Point:
    """Sum of two points that are not opposite."""
    (x1, y1), (x2, y2) = one, other
    if one == other:
        slope = 3 * (x1 * x1 - 1) * pow(2 * y1, -1, _FIELD)
    else:
        slope = (y2 - y1) * pow(x2 - x1, -1, _FIELD)
    x = (slope * slope - x1 - x2) % _FIELD
    return x, (slope * (x1 - x) - y1) % _FIELD


def _integer(number: int) -> bytes:
    return _der(0x02, number.to_bytes(number.bit_length() // 8 + 1))


def _der(tag: int, *parts: bytes) -> bytes:
    """A value by the Distinguished Encoding Rules."""
    content = b"".join(parts)
    size = len(content)
    if size < 0x80:
        return bytes((tag, size)) + content
    width = (size.bit_length() + 7) // 8
    return bytes((tag, 0x80 + width)) + size.to_bytes(width) + content


def _pem(kind: str, content: bytes) -> str:
    return f"-----BEGIN {kind}-----\n{encodebytes(content).decode()}-----END {kind}-----\n"
