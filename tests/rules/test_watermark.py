"""A watermark against a simple model: a list that is searched every time."""

from hypothesis import given
from hypothesis import strategies as st

from roquet.rules.watermark import Watermark

steps = st.lists(
    st.one_of(
        st.tuples(st.just("wait"), st.integers(1, 9), st.integers(0, 20)),
        st.tuples(st.just("advance"), st.integers(0, 30), st.just(0)),
        st.tuples(st.just("expire"), st.integers(0, 20), st.just(0)),
        st.tuples(st.just("release"), st.just(0), st.just(0)),
    )
)


class ListOfWaiters:
    """Waiters in order of arrival: (target, deadline, name)."""

    def __init__(self) -> None:
        self.value = 0
        self.waiting: list[tuple[int, int, int]] = []

    def advance(self, value: int) -> list[int]:
        self.value = max(self.value, value)
        return self._take([w for w in self.waiting if w[0] <= self.value], key=0)

    def expire(self, now: int) -> list[int]:
        return self._take([w for w in self.waiting if w[1] <= now], key=1)

    def release(self) -> list[int]:
        return self._take(self.waiting, key=0)

    def _take(self, some: list[tuple[int, int, int]], key: int) -> list[int]:
        self.waiting = [w for w in self.waiting if w not in some]
        return [w[2] for w in sorted(some, key=lambda w: w[key])]


@given(steps)
def test_everyone_comes_back_once_when_it_is_time(script: list[tuple[str, int, int]]) -> None:
    watermark: Watermark[int] = Watermark()
    model = ListOfWaiters()
    for name, (step, number, deadline) in enumerate(script):
        if step == "wait":
            watermark.wait(watermark.value + number, deadline, name)
            model.waiting.append((model.value + number, deadline, name))
        elif step == "release":
            assert watermark.release() == model.release()
        else:
            assert getattr(watermark, step)(number) == getattr(model, step)(number)
        assert watermark.value == model.value
        assert len(watermark) == len(model.waiting)
        assert watermark.next_deadline() == min((w[1] for w in model.waiting), default=None)


def test_the_value_never_falls() -> None:
    watermark: Watermark[str] = Watermark(7)
    assert watermark.advance(3) == []
    assert watermark.value == 7


def test_the_least_target_goes_first_and_equals_in_the_order_they_came() -> None:
    watermark: Watermark[str] = Watermark()
    for target, who in [(3, "late"), (1, "first"), (1, "second"), (9, "still waiting")]:
        watermark.wait(target, 100, who)
    assert watermark.advance(5) == ["first", "second", "late"]
    assert watermark.release() == ["still waiting"]


def test_waiters_need_not_be_comparable() -> None:
    watermark: Watermark[object] = Watermark()
    for _ in range(3):
        watermark.wait(1, 5, object())
    assert len(watermark.expire(5)) == 3


def test_nothing_is_due_without_waiters() -> None:
    watermark: Watermark[str] = Watermark()
    assert watermark.next_deadline() is None
    assert watermark.expire(1_000) == watermark.release() == watermark.advance(4) == []
