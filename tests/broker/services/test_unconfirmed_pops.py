from roquet.broker.services.unconfirmed_pops import UnconfirmedPops

FIRST, SECOND = ("g", "orders", 0), ("g", "orders", 1)


def test_progress_may_not_be_beyond_the_first_unconfirmed_pop_of_each_queue() -> None:
    pops = UnconfirmedPops()
    pops.add(FIRST, 10, 100)
    pops.add(SECOND, 3, 200)
    pops.add(FIRST, 20, 300)
    assert pops.starts() == {FIRST: 10, SECOND: 3}
    pops.settle(199)
    assert pops.starts() == {FIRST: 20, SECOND: 3}
    pops.settle(300)
    assert (pops.starts(), len(pops)) == ({}, 0)


def test_an_operator_may_have_moved_the_group_back_between_two_pops() -> None:
    pops = UnconfirmedPops()
    pops.add(FIRST, 20, 100)
    pops.add(FIRST, 10, 200)
    assert pops.starts() == {FIRST: 10}
    pops.clear()
    assert pops.starts() == {}
