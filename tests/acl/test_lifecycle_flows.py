"""The flows that CANN documents, end to end."""

from __future__ import annotations

from contextlib import contextmanager
from typing import TYPE_CHECKING

from dumpstream import _native

if TYPE_CHECKING:
    from collections.abc import Iterator

    from .conftest import Program


@contextmanager
def filled_ring() -> Iterator[_native.Ring]:
    """Let the callback fill a ring."""
    ring = _native.Ring(4 << 20)
    ring.attach(False, 0, 1 << 40)
    try:
        yield ring
    finally:
        ring.detach(10**10)
        ring.close()


def chunks_in(ring: _native.Ring) -> int:
    """Return the number of chunks in *ring*, and empty it."""
    count = 0
    while (leased := ring.lease(4096, 4 << 20)) is not None:
        chunks, losses, lease, _ = leased
        assert not losses
        count += len(chunks)
        del chunks
        lease.release()
    return count


def test_to_files_again_and_again_with_other_configurations(program: Program) -> None:
    life, first, second = program.lifecycle, program.config("first"), program.config("second")
    counts = []

    life.init()
    for config in (first, second):
        life.init_dump()
        life.set_dump(config)
        program.load_and_run()
        life.finalize_dump()
        counts.append((program.dumped_to_disk("first"), program.dumped_to_disk("second")))
    program.load_and_run()
    life.finalize()

    assert counts[0][0] > 0
    assert counts == [(counts[0][0], 0), (counts[0][0], counts[0][0])]
    assert (program.dumped_to_disk("first"), program.dumped_to_disk("second")) == counts[1]


def test_by_callback_two_models_under_one_registration(program: Program) -> None:
    life, config = program.lifecycle, program.config("first")
    counts = []

    with filled_ring() as ring:
        life.init()
        life.register()
        for models in (1, 2):
            life.init_dump()
            life.set_dump(config)
            for _ in range(models):
                program.load_and_run()
            life.finalize_dump()
            counts.append(chunks_in(ring))
        life.unregister()
        life.finalize()

    assert counts[0] > 0
    assert counts[1] == 2 * counts[0]
    assert program.dumped_to_disk("first") == 0


def test_by_callback_without_set_dump_nothing_comes_and_nothing_is_refused(program: Program) -> None:
    life = program.lifecycle

    with filled_ring() as ring:
        life.init()
        life.register()
        life.init_dump()
        program.load_and_run()
        life.finalize_dump()
        life.unregister()
        life.finalize()

        assert chunks_in(ring) == 0


def test_configured_by_init_once_per_process(program: Program) -> None:
    life, config = program.lifecycle, program.config("first")

    with filled_ring() as ring:
        assert life.init(config)
        life.register()
        program.load_and_run()
        life.finalize()
        life.unregister()
        count = chunks_in(ring)

    assert count > 0
    assert program.dumped_to_disk("first") == 0
