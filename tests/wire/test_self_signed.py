"""Self-signed certificates, as OpenSSL and other readers take them."""

import ssl
from ipaddress import IPv4Address
from pathlib import Path

import pytest
from cryptography import x509
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.hazmat.primitives.hashes import SHA256
from hypothesis import given, settings
from hypothesis import strategies as st

from roquet.wire.self_signed import ORDER, self_signed

numbers = st.integers(1, ORDER - 1)


@given(numbers, numbers, st.integers(1, 2**64))
@settings(max_examples=10)
def test_the_certificate_is_signed_by_its_own_key(secret: int, nonce: int, serial: int) -> None:
    certificate = x509.load_pem_x509_certificate(self_signed("n", secret, nonce, serial).encode())
    key = certificate.public_key()
    assert isinstance(key, ec.EllipticCurvePublicKey)
    assert key == ec.derive_private_key(secret, ec.SECP256R1()).public_key()
    key.verify(certificate.signature, certificate.tbs_certificate_bytes, ec.ECDSA(SHA256()))
    assert certificate.serial_number == serial


@pytest.mark.parametrize("name", ["roquet", "n" * 64])
def test_it_is_for_its_name_and_this_machine(name: str) -> None:
    certificate = x509.load_pem_x509_certificate(self_signed(name, 5, 7, 1).encode())
    assert certificate.issuer == certificate.subject
    assert certificate.subject.rfc4514_string() == f"CN={name}"
    names = certificate.extensions.get_extension_for_class(x509.SubjectAlternativeName).value
    assert names.get_values_for_type(x509.DNSName) == ["localhost"]
    assert names.get_values_for_type(x509.IPAddress) == [IPv4Address("127.0.0.1")]
    assert certificate.not_valid_after_utc.year == 9999


def test_a_server_can_load_it(tmp_path: Path) -> None:
    file = tmp_path / "both.pem"
    file.write_text(self_signed("roquet", ORDER - 1, 1, 1))
    ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER).load_cert_chain(file)
