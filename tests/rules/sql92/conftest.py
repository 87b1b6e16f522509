"""Expressions as people, and attackers, write them, and messages to try them on."""

from hypothesis import strategies as st

NAMES = st.sampled_from(["a", "b", "c", "_x$1", "Long_Name"])
TEXTS = st.one_of(
    st.sampled_from(["", "x", "xy", "5", "true", "it''s"]),
    st.text(st.characters(exclude_categories=["Cs"], exclude_characters="'"), max_size=4),
).map("'{}'".format)
WHOLES = st.one_of(st.integers(0, 9), st.integers(0, 2**63 - 1)).map(str)
DECIMALS = st.one_of(
    st.sampled_from(["0.5", "5.", ".25", "1e1", "2E-1", "99.5"]),
    st.floats(5e-324, 1e308, allow_nan=False).map(repr),
)
NUMBERS = st.one_of(WHOLES, DECIMALS)
SIGNED = st.one_of(NUMBERS, NUMBERS.map("- {}".format), NAMES, NAMES.map("+{}".format))
VALUES = st.one_of(SIGNED, TEXTS, st.sampled_from(["TRUE", "false", "- 'x'", "- TRUE"]))
NOT = st.sampled_from(["", "NOT ", "not "])


_COMPARISONS = st.one_of(
    st.builds("{} {} {}".format, VALUES, st.sampled_from(["=", "<>"]), VALUES),
    st.builds("{} {} {}".format, SIGNED, st.sampled_from(["<", "<=", ">", ">="]), SIGNED),
    st.builds("{} {}BETWEEN {} AND {}".format, SIGNED, NOT, SIGNED, SIGNED),
    st.builds(
        "{} {}IN ({})".format, NAMES, NOT,
        st.lists(TEXTS, min_size=1, max_size=3).map(", ".join),
    ),
    st.builds(
        "{} {}{} {}".format, VALUES, NOT,
        st.sampled_from(["CONTAINS", "startsWith", "ENDSWITH"]), TEXTS,
    ),
    st.builds("{} IS {}NULL".format, VALUES, NOT),
    st.sampled_from(["TRUE", "FALSE", "NULL"]),
    NAMES,
)  # fmt: skip


def _joined(inner: st.SearchStrategy[str]) -> st.SearchStrategy[str]:
    both = st.sampled_from(["AND", "OR", "and", "Or"])
    return st.one_of(
        st.builds("{} {} {}".format, inner, both, inner),
        st.builds("({})".format, inner),
        st.builds("NOT ({})".format, inner),
        st.builds("({}) {} ({})".format, inner, st.sampled_from(["=", "<>"]), inner),
        st.builds("({}) IS {}NULL".format, inner, NOT),
    )


EXPRESSIONS = st.recursive(_COMPARISONS, _joined, max_leaves=6)
"""Mostly valid expressions, and some that make no sense."""

LIKELY = st.sampled_from(
    ["", "1", "5", "05", "-3", "+5", " 7", "9", "12", "99", "2.5", "99.75", "1e1", "0x1p3", "NaN",
     "-0.0", "x", "xy", "true", "TRUE", "\u0665", "it's"]
)  # fmt: skip

MESSAGES = st.dictionaries(NAMES, st.one_of(LIKELY, st.text(max_size=3)), max_size=4)
