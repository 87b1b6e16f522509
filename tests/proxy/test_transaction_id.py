"""Transaction ids say which half message of which broker is meant."""

from hypothesis import given
from hypothesis import strategies as st

from roquet.proxy.transaction_id import TransactionId, decode_transaction_id

NUMBERS = st.integers(0, 2**63 - 1)
WORDS = st.text(st.characters(exclude_characters="\x01", exclude_categories=["Cs"]), min_size=1)


@given(
    st.builds(
        TransactionId,
        broker=st.text(min_size=1),
        half_offset=NUMBERS,
        position=NUMBERS,
        message_id=WORDS,
    )
)
def test_an_id_is_read_as_it_was_written(half: TransactionId) -> None:
    assert decode_transaction_id(half.text()) == half
