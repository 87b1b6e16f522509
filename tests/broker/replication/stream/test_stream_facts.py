from roquet.broker.replication.stream.stream_facts import StreamError, first_error


def test_the_first_error_of_nested_groups_says_why_a_stream_ended() -> None:
    error = StreamError("silent")
    assert first_error(error) is error
    group = ExceptionGroup("outer", [ExceptionGroup("inner", [error]), OSError()])
    assert first_error(group) is error
