from roquet.pictures.escaping import escape_text


def test_tags_quotes_and_control_characters_are_shown() -> None:
    assert escape_text('<b a="\'">&') == "&lt;b a=&quot;&#x27;&quot;&gt;&amp;"
    assert escape_text("a\x1b\u202e\ud800\nb") == r"a\x1b\u202e\ud800\nb"
    assert escape_text(3) == "3"
