"""Files get the step that was marked before their first chunk, unless their names have one."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from dumpstream._native import Chunk
from dumpstream.reassemble import Reassembler
from dumpstream.stages.events import End, Whole

from .test_fuzz import fast

_NAMED = "/dump/20260101000000/0/model/1/5/Add.op.1.2.3"
_EVENTS = st.lists(
    st.one_of(
        st.integers(0, 9),
        st.tuples(st.sampled_from(["a", "b", "c.csv", _NAMED]), st.booleans(), st.sampled_from([-1, 0, 3])),
    ),
    max_size=30,
)


@fast
@given(_EVENTS)
def test_any_interleaving_of_marks_and_chunks_gives_every_file_its_step(
    events: list[int | tuple[str, bool, int]],
) -> None:
    reassembler = Reassembler()
    marked: int | None = None
    begun: dict[str, int | None] = {}
    found, expected = [], []

    def handle(handled: object) -> None:
        for event in handled:  # type: ignore[attr-defined]
            if isinstance(event, Whole):
                found.append((event.chunk.name, event.step))
            elif isinstance(event, End):
                found.append((event.file.name, event.file.step))
                expected.append((event.file.name, begun.pop(event.file.name)))

    for event in events:
        if isinstance(event, int):
            marked = event
            reassembler.mark(event)
            continue
        name, last, offset = event
        begun.setdefault(name, None if name == _NAMED else marked)
        fed = [
            it
            for it in reassembler.feed([Chunk(name, b"x", offset, last)], 0.0)
            if isinstance(it, Whole | End)
        ]
        if fed and isinstance(fed[0], Whole):
            expected.append((name, begun.pop(name)))
        handle(fed)
    handle([event for event in reassembler.finish() if isinstance(event, End)])

    assert found == expected
    assert not begun


def test_a_file_that_waited_behind_the_last_chunk_of_another_has_the_step_at_which_it_came() -> None:
    reassembler = Reassembler()
    reassembler.mark(1)
    events = reassembler.feed([Chunk("a", b"x", sequence=1, more=True)], 0.0)
    reassembler.mark(2)
    events += reassembler.feed([Chunk("a", b"y", sequence=2)], 0.0)
    reassembler.mark(3)
    events += reassembler.feed([Chunk("a", b"z", is_last=True, sequence=1)], 0.0)
    events += reassembler.finish()

    assert [event.file.step for event in events if isinstance(event, End)] == [1, 2]


def test_a_file_known_only_by_its_loss_has_the_step_of_the_loss() -> None:
    reassembler = Reassembler()
    reassembler.mark(4)

    (end,) = [it for it in reassembler.lose("a", "ring_full", 1, ended=True, now=0.0) if isinstance(it, End)]

    assert end.file.step == 4
