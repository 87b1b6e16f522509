from roquet.namesrv.config import NameServerConfig


def test_a_name_server_listens_where_clients_look_for_one() -> None:
    assert NameServerConfig().port == 9876


def test_by_default_nothing_is_written() -> None:
    assert NameServerConfig().directory is None
