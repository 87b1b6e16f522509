from roquet.pictures.escaping import escaped


def test_tags_quotes_and_control_characters_are_shown() -> None:
    assert escaped('<b a="\'">&') == "&lt;b a=&quot;&#x27;&quot;&gt;&amp;"
    assert escaped("a\x1b\u202e\ud800\nb") == r"a\x1b\u202e\ud800\nb"
    assert escaped(3) == "3"
