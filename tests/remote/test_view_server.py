"""The page of a run in a real S3 server that goes away."""

from __future__ import annotations

from typing import TYPE_CHECKING

import anyio
import pytest
from anyio.to_thread import run_sync
from tests.conftest import LIMIT_S, CaptureBuilder

from dumpstream.format.verdict import Verdict
from dumpstream.simulation import Workload
from dumpstream.system.location import as_location
from dumpstream.view import watch as watching
from dumpstream.view.watch import Watch

from .test_reading_server import copy

if TYPE_CHECKING:
    from s3server import S3Server

    from .bucket import Bucket

pytestmark = [pytest.mark.anyio, pytest.mark.stores]


@pytest.fixture
def url(builder: CaptureBuilder, bucket: Bucket) -> str:
    for file in Workload.parse("models=1,ops=3,steps=2,nan=1@1,flow=on").expected_files("/dump"):
        builder.add(file.name.replace("//", "/"), file.data, Verdict.COMPLETE)
    copy(builder.finish(), bucket)
    return bucket.url


async def test_store_that_goes_away_is_told_and_seen_again(
    url: str, s3: S3Server, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(watching, "_LOOK_AT_STORE_S", 0.1)
    watch = await run_sync(Watch, as_location(url))
    await run_sync(watch.open)
    watch.shown.set()

    async with anyio.create_task_group() as tasks:
        tasks.start_soon(watch.follow)
        tasks.start_soon(watch.work)
        with anyio.fail_after(LIMIT_S):
            told = watch.told
            while not told["sentence"]:
                told = await watch.changed(told)
            try:
                await run_sync(s3.kill)
                while "problem" not in told:
                    told = await watch.changed(told)
            finally:
                await run_sync(s3.start)
            assert url in told["problem"]
            assert watch.packed
            while "problem" in told:
                told = await watch.changed(told)
        tasks.cancel_scope.cancel()
