"""The culprit of random workloads: right wherever it can be known, unknown wherever not, and never wrong."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest
from tests.diagnosis.torn import wrongly_blamed
from tests.diagnosis.workloads import Story, describe, draw_replicas, draw_workload, is_bad, is_overwritten

from dumpstream.diagnosis.blame import Blame

if TYPE_CHECKING:
    from dumpstream.simulation.truth import Execution


def check(seed: int) -> None:
    check_story(Story(draw_workload(seed)))


def check_replicas(seed: int) -> None:
    check_story(Story(*draw_replicas(seed)))


def check_story(story: Story) -> None:
    culprits = dict(story.culprits())
    for key in story.made:
        assert key in culprits, describe(story, "not the culprit", key)
    for key, execution in culprits.items():
        if not execution.collective and execution.inputs:
            known = story.can_be_known(key, execution)
            if known is not None:
                assert (key in story.made) is known, describe(story, "knowable" if known else "a guess", key)
    check_first(story)


def check_first(story: Story) -> None:
    """Check that nothing bad was dumped before what is told first."""
    bad = sorted((key.step, key.rank, it.number) for key, it in story.truth.items() if _shows(story, it))
    if not story.origins.found:
        assert not bad, describe(story, "not found", bad[0])
        return
    if not bad:
        return
    first = story.key(story.origins.found[0])
    assert first.step <= bad[0][0], describe(story, "not the first", first)
    if story.origins.found[0].blame is Blame.MADE:
        number = story.truth[first].number
        before = [it for it in bad if it[:2] == (first.step, first.rank) and it[2] < number]
        assert not before, describe(story, "not the first of its rank", first)


def _shows(story: Story, execution: Execution) -> bool:
    """Whether something bad of *execution* is in the dump; an input that it wrote over is not."""
    joint = story.workload.io_files == "joint" and not execution.collective
    inputs = [it for it in execution.inputs if not (joint and is_overwritten(it, execution))]
    return story.is_whole(execution) and any(map(is_bad, (*inputs, *execution.outputs)))


@pytest.mark.parametrize("seed", range(100))
def test_the_culprit_is_right_or_unknown(seed: int) -> None:
    check(seed)


@pytest.mark.parametrize("seed", range(20))
def test_the_culprit_of_replicas_is_right_or_unknown(seed: int) -> None:
    check_replicas(seed)


@pytest.mark.parametrize("seed", range(40))
def test_no_operator_is_wrongly_blamed_if_files_are_missing_or_mixed_up(seed: int) -> None:
    assert wrongly_blamed(seed)[0] == []


@pytest.mark.workloads
@pytest.mark.parametrize("first", range(100, 1600, 50))
def test_no_operator_is_wrongly_blamed_in_a_thousand_damaged_runs(first: int) -> None:
    found = [wrongly_blamed(seed) for seed in range(first, first + 50)]

    assert [files for files, _ in found if files] == []
    # Not because nothing is blamed any more: one in three of such runs has an operator that can be.
    assert sum(blamed > 0 for _, blamed in found) > 5


@pytest.mark.workloads
@pytest.mark.parametrize("first", range(100, 1100, 10))
def test_the_culprit_is_right_or_unknown_a_thousand_times(first: int) -> None:
    for seed in range(first, first + 10):
        check(seed)


@pytest.mark.workloads
@pytest.mark.parametrize("first", range(100, 400, 10))
def test_the_culprit_of_replicas_is_right_or_unknown_hundreds_of_times(first: int) -> None:
    for seed in range(first, first + 10):
        check_replicas(seed)
