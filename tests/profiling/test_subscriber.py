"""Subscriptions of models, which exclude profiling."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from dumpstream import AclError, OrderError, Profiler, Subscriber

if TYPE_CHECKING:
    from pathlib import Path


def test_subscriptions_and_profiling_exclude_each_other(profiler: Profiler, place: Path) -> None:
    subscriber = Subscriber(profiler)
    subscriber.subscribe(0, 1)
    with pytest.raises(OrderError, match="a model is subscribed"):
        profiler.init(place)

    subscriber.unsubscribe(0)
    profiler.init(place)

    for call in (
        lambda: subscriber.subscribe(0, 1),
        lambda: subscriber.unsubscribe(0),
        lambda: subscriber.count_operators(bytes(128)),
    ):
        with pytest.raises(OrderError, match="profiling is initialised"):
            call()


def test_a_model_is_subscribed_once_and_unsubscribed_once(profiler: Profiler) -> None:
    subscriber = Subscriber(profiler)
    subscriber.subscribe(1, 1)

    with pytest.raises(OrderError, match="model 1 is subscribed"):
        subscriber.subscribe(1, 1)
    assert subscriber.count_operators(bytes(256)) == 2
    subscriber.unsubscribe(1)
    with pytest.raises(OrderError, match="model 1 is not subscribed"):
        subscriber.unsubscribe(1)


def test_a_model_that_does_not_exist_is_the_runtimes_to_refuse(profiler: Profiler) -> None:
    with pytest.raises(AclError, match="100011"):
        Subscriber(profiler).subscribe(77, 1)

    assert profiler.subscribed == set()
