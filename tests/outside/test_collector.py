"""A collector in this process, and peers that behave, or do not."""

from __future__ import annotations

import gc
import mmap
import os
import random
import socket
import subprocess
import sys
from contextlib import asynccontextmanager
from pathlib import Path
from tempfile import TemporaryDirectory
from time import thread_time
from typing import TYPE_CHECKING, Any

import anyio
import anyio.lowlevel
import pytest
from anyio.to_thread import run_sync
from tests.conftest import LIMIT_S

from dumpstream import CapturedProcess, Collector, CollectorError, DestinationError, SinkError, open_collector
from dumpstream.archive.manifest import Process, read_manifest
from dumpstream.outside.agent import target_environment
from dumpstream.outside.wire import VERSION, Message, decode, encode
from dumpstream.run.session import Session

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Callable, Iterator, Sequence

    from tests.outside.conftest import Outside

pytestmark = [pytest.mark.anyio, pytest.mark.both_loops]

_TOTAL = 16 << 20
#: Seconds of work: many times what one packet takes.
_LONGEST_TURN_S = 0.1
_SLOW_JOB = [sys.executable, "-m", "dumpstream", "simulate", "--steps", "100000", "--rate", "4M"]


class Peer:
    """A connection to a collector, from this very process."""

    def __init__(self, collector: Collector) -> None:
        self.socket = socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        self.socket.connect(str(collector.socket_path))
        self.descriptors: list[int] = []

    def send(self, kind: str, *fields: tuple[str, str | int]) -> None:
        self.socket.send(encode(kind, fields))

    def say_hello(self, *fields: tuple[str, str | int], version: int = VERSION) -> None:
        self.send("hello", ("version", version), ("parent", 1), ("argv", "job"), *fields)

    async def answer(self) -> Message:
        """Return what the collector answers; its descriptors are kept."""
        self.socket.settimeout(LIMIT_S)
        packet, descriptors, _, _ = await run_sync(socket.recv_fds, self.socket, 1 << 16, 4)
        self.descriptors += descriptors
        return decode(packet)

    async def join(self, *fields: tuple[str, str | int]) -> Message:
        self.say_hello(*fields)
        return await self.answer()

    async def is_hung_up(self) -> bool:
        self.socket.settimeout(LIMIT_S)
        try:
            return await run_sync(self.socket.recv, 1) == b""
        except ConnectionResetError:
            return True

    def close(self) -> None:
        self.socket.close()
        while self.descriptors:
            os.close(self.descriptors.pop())


class Rig:
    """Opens a collector, and lets peers and jobs join it."""

    def __init__(self, outside: Outside) -> None:
        self.out = outside.out
        self.job = outside.job
        self._peers: list[Peer] = []
        self._jobs: list[subprocess.Popen[bytes]] = []

    @asynccontextmanager
    async def collecting(self, **options: Any) -> AsyncIterator[Collector]:
        async with open_collector(self.out, **{"buffer_bytes": _TOTAL, **options}) as collector:
            yield collector

    def peer(self, collector: Collector) -> Peer:
        self._peers.append(Peer(collector))
        return self._peers[-1]

    async def start(self, collector: Collector, job: Sequence[str], rank: int) -> subprocess.Popen[bytes]:
        """Start a job that joins *collector*."""
        return await run_sync(self._start, collector, job, rank)

    def _start(self, collector: Collector, job: Sequence[str], rank: int) -> subprocess.Popen[bytes]:
        environment = target_environment(collector.socket_path, {**os.environ, "RANK": str(rank)})
        self._jobs.append(subprocess.Popen(job, env=environment, stdout=subprocess.DEVNULL))
        return self._jobs[-1]

    async def records(self) -> Sequence[Process]:
        return (await run_sync(read_manifest, self.out)).processes

    async def until(self, condition: Callable[[], object]) -> None:
        with anyio.fail_after(LIMIT_S):
            while not condition():  # noqa: ASYNC110 - there is no event for it
                await anyio.sleep(0.005)

    def close(self) -> None:
        for peer in self._peers:
            peer.close()
        for job in self._jobs:
            job.kill()
            job.wait()


@pytest.fixture
def rig(outside: Outside) -> Iterator[Rig]:
    rig = Rig(outside)
    yield rig
    rig.close()


def has_begun(process: CapturedProcess) -> bool:
    return process.report.ring_bytes > 0


def whole_files(process: CapturedProcess) -> int:
    return process.report.verdicts.get("complete", 0)


async def test_a_process_gets_a_sealed_ring_and_the_settings(rig: Rig) -> None:
    async with rig.collecting(on_full="drop", block_timeout=2, max_file_bytes=1000) as collector:
        peer = rig.peer(collector)

        message = await peer.join(("env.RANK", 3), ("env.LOCAL_WORLD_SIZE", 2))

        assert message.kind == "ring"
        numbers = [message.number(key) for key in ("size", "block", "max_file_bytes")]
        assert numbers == [_TOTAL // 2, 0, 1000]
        assert message.text("block_ns") == "2000000000"
        (ring,) = peer.descriptors
        assert os.fstat(ring).st_size > _TOTAL // 2
        with pytest.raises(PermissionError):
            os.ftruncate(ring, 0)
        peer.send("bye", ("callbacks", 0))
        await rig.until(lambda: has_begun(collector.processes[0]))
    (record,) = await rig.records()
    assert (record.directory, record.rank, record.pid) == ("rank-3", 3, os.getpid())
    assert record.ending == "still running when its capture ended"
    assert collector.whole


async def test_the_socket_lies_in_a_private_directory_that_goes_with_it(rig: Rig) -> None:
    async with rig.collecting() as collector:
        directory = collector.socket_path.parent
        assert (await run_sync(directory.stat)).st_mode & 0o777 == 0o700

    assert not await run_sync(directory.exists)


async def test_a_process_that_comes_again_has_a_capture_of_its_own(rig: Rig) -> None:
    async with rig.collecting() as collector:
        for _ in range(2):
            peer = rig.peer(collector)
            assert (await peer.join(("env.RANK", 0))).kind == "ring"
            peer.send("bye")
            peer.close()

    assert [record.directory for record in await rig.records()] == ["rank-0", "rank-0.2"]


async def test_nothing_is_kept_open_for_a_process_that_left_and_joined_again(rig: Rig) -> None:
    async with rig.collecting() as collector:
        open_files = []
        for count in range(1, 9):
            peer = rig.peer(collector)
            assert (await peer.join(("env.RANK", 0))).kind == "ring"
            peer.send("bye")
            peer.close()
            await rig.until(lambda: collector._service._shares.free == _TOTAL)
            await rig.until(lambda: collector.running == 1)
            open_files.append(len(await run_sync(os.listdir, "/proc/self/fd")))
            assert len(collector.processes) == count

    endings = [record.ending for record in await rig.records()]
    assert endings == ["left, and joined again"] * 7 + ["still running when its capture ended"]
    assert open_files[-1] <= open_files[1] + 2


async def test_a_process_that_became_another_program_joins_anew(rig: Rig) -> None:
    async with rig.collecting() as collector:
        before, after = rig.peer(collector), rig.peer(collector)
        await before.join()
        before.close()  # as exec does, without a farewell

        assert (await after.join()).kind == "ring"

    first, second = await rig.records()
    assert first.ending == "replaced by another program"
    assert second.ending == "still running when its capture ended"


async def test_a_process_joins_once_at_a_time(rig: Rig) -> None:
    async with rig.collecting() as collector:
        first, second = rig.peer(collector), rig.peer(collector)
        await first.join()

        refusal = await second.join()

    assert refusal.kind == "refused"
    assert "being captured already" in refusal.text("reason")
    assert not collector.whole


async def test_an_agent_of_another_version_is_refused(rig: Rig) -> None:
    async with rig.collecting() as collector:
        peer = rig.peer(collector)
        peer.say_hello(version=VERSION - 1)

        refusal = await peer.answer()

    assert "use the agent of the same dumpstream" in refusal.text("reason")
    assert [record.directory for record in await rig.records()] == [""]


async def test_a_code_that_an_acl_call_returned_is_the_processes_problem(rig: Rig) -> None:
    async with rig.collecting() as collector:
        peer = rig.peer(collector)
        await peer.join()
        peer.send("acl", ("call", "aclmdlInitDump"), ("code", 100002))
        peer.send("acl", ("call", "aclmdlSetDump"), ("code", 100009))
        peer.send("acl", ("call", "acldumpRegCallback"), ("code", -1))
        await rig.until(lambda: collector.processes[0].record.problem)

    assert ((await rig.records())[0].problem or "").startswith("aclmdlSetDump returned 100009")
    assert not collector.whole


async def test_an_agent_that_tells_of_no_configuration_is_captured_all_the_same(rig: Rig) -> None:
    async with rig.collecting() as collector:
        peer = rig.peer(collector)
        await peer.join(("env.RANK", 0))
        peer.send("driven", ("call", "aclmdlInitDump"))
        peer.send("bye", ("callbacks", 0), ("lost", 0), ("lost_bytes", 0))
        await rig.until(lambda: has_begun(collector.processes[0]))

    (run,) = (await run_sync(read_manifest, rig.out / "rank-0")).runs
    assert (run.config, run.configured) == (None, [])
    assert collector.whole


async def test_a_configuration_that_makes_no_sense_is_a_note_and_no_failure(rig: Rig) -> None:
    async with rig.collecting() as collector:
        peer = rig.peer(collector)
        await peer.join(("env.RANK", 0))
        about = (("call", "aclmdlSetDump"), ("path", "/x/acl.json"), ("offset", 0))
        peer.send("config", *about, ("size", 8), ("text", "[garbage"))
        peer.send("config", *about, ("size", 99), ("text", "{"))
        peer.send("bye", ("lost_configurations", 0))
        await rig.until(lambda: has_begun(collector.processes[0]))

    (run,) = (await run_sync(read_manifest, rig.out / "rank-0")).runs
    assert [it.path for it in run.configured] == ["/x/acl.json"] * 2
    assert (run.configured[0].problem or "").startswith("this is not JSON")
    assert run.configured[1].problem == "did not reach the collector as a whole"
    assert run.outcome == "finished"
    assert (await rig.records())[0].problem is None
    assert collector.whole


async def test_a_stranger_is_not_heard(rig: Rig) -> None:
    async with rig.collecting() as collector:
        peer, other = rig.peer(collector), rig.peer(collector)
        for kind in ("wake", "bye", "acl", "driven", "nonsense"):
            peer.send(kind)
        await other.join()

        assert len(collector.processes) == 1


async def test_garbage_ends_one_connection_and_no_other(rig: Rig) -> None:
    source = random.Random(7)
    async with rig.collecting() as collector:
        peer = rig.peer(collector)
        await peer.join()
        for _ in range(50):
            hostile = rig.peer(collector)
            hostile.socket.send(source.randbytes(source.randrange(1, 3000)) + b"x")
            assert await hostile.is_hung_up()

        peer.send("wake")
        await rig.until(lambda: has_begun(collector.processes[0]))
        assert len(collector.processes) == 1


async def test_of_hundreds_of_idle_connections_the_oldest_make_room(rig: Rig) -> None:
    async with rig.collecting() as collector:
        idle = [rig.peer(collector) for _ in range(400)]

        answer = await rig.peer(collector).join()

        assert answer.kind == "ring"
        idle[0].socket.setblocking(False)
        assert idle[0].socket.recv(1) == b""  # at once, and not because it has said nothing for so long


async def test_a_peer_that_does_not_introduce_itself_is_disconnected(
    rig: Rig, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("dumpstream.outside.reception._INTRODUCTION_S", 0.05)
    async with rig.collecting() as collector:
        assert await rig.peer(collector).is_hung_up()


_AS_STRANGER = """
import os, socket, sys
os.setuid(12345)
peer = socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET)
peer.connect(sys.argv[1])
print(peer.recv(100).partition(b"\\0")[0].decode())
"""


@pytest.mark.skipif(os.geteuid() != 0, reason="only root can become another user")
async def test_a_process_of_another_user_is_refused(rig: Rig) -> None:
    with TemporaryDirectory(dir="/tmp") as directory:  # a path that the other user can reach
        socket_path = Path(directory) / "socket"
        async with rig.collecting(socket_path=socket_path):
            for path, mode in ((socket_path.parent, 0o755), (socket_path, 0o666)):
                await run_sync(path.chmod, mode)
            command = ["/usr/bin/python3", "-c", _AS_STRANGER, str(socket_path)]
            done = await run_sync(lambda: subprocess.run(command, capture_output=True, check=True))

    assert done.stdout == b"refused\n"
    assert await rig.records() == []


_IDLE = """
import socket, sys
peer = socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET)
peer.connect(sys.argv[1])
print(flush=True)
sys.stdin.readline()
peer.send(b"hello\\0version=2\\0")
print(peer.recv(100)[:4].decode(), flush=True)
"""


async def test_idle_connections_of_one_process_do_not_disconnect_another(rig: Rig) -> None:
    async with rig.collecting() as collector:
        command = [sys.executable, "-c", _IDLE, str(collector.socket_path)]
        other = await run_sync(
            lambda: subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE)
        )
        assert other.stdout is not None
        await run_sync(other.stdout.readline)

        for _ in range(300):
            rig.peer(collector)
        await rig.peer(collector).join()  # all before it are accepted then
        answer, _ = await run_sync(other.communicate, b"\n")

    assert answer == b"ring\n"


_FLOOD = """
import socket, sys
packet = sys.argv[2].encode() + b"\\0" + b"".join(b"%d=\\0" % number for number in range(4096))
peers = [socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET) for _ in range(int(sys.argv[3]))]
for peer in peers:
    peer.connect(sys.argv[1])
if len(peers) == 1:
    peers[0].send(b"hello\\0version=2\\0")
for _ in range(300):
    for peer in peers:
        peer.send(packet)
"""


@pytest.mark.parametrize(("kind", "peers"), [("wake", 12), ("config", 1)], ids=["strangers", "joined"])
async def test_packets_of_very_many_fields_do_not_stop_the_loop(rig: Rig, kind: str, peers: int) -> None:
    longest = 0.0
    async with rig.collecting() as collector:
        command = [sys.executable, "-c", _FLOOD, str(collector.socket_path), kind, str(peers)]
        flood = await run_sync(subprocess.Popen, command)
        gc.freeze()  # what earlier tests have left is not searched in the middle of a turn
        while flood.poll() is None:
            before = thread_time()
            await anyio.lowlevel.checkpoint()
            longest = max(longest, thread_time() - before)

    assert flood.returncode == 0
    assert longest < _LONGEST_TURN_S


async def test_a_process_that_asks_through_many_connections_is_refused_at_once(
    rig: Rig, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("dumpstream.outside.service._CLOSING_S", LIMIT_S)
    async with rig.collecting() as collector:
        first = rig.peer(collector)
        await first.join()
        others = [rig.peer(collector) for _ in range(12)]
        for other in others:
            other.say_hello()
            await anyio.lowlevel.checkpoint()

        refusals = [await other.answer() for other in others[4:]]
        first.close()  # those that still wait may join now

    assert {refusal.kind for refusal in refusals} == {"refused"}
    assert "being captured already" in refusals[0].text("reason")


async def test_many_refusals_are_counted_and_not_all_written_down(rig: Rig) -> None:
    async with rig.collecting() as collector:
        await rig.peer(collector).join()
        for _ in range(20):
            await rig.peer(collector).join()

    records = await rig.records()
    assert len(records) == 17
    assert (records[-1].problem or "").endswith("; more were refused for this reason: 4")
    assert not collector.whole


@pytest.mark.parametrize("seed", range(3))
async def test_hostile_bytes_in_a_ring_hurt_their_own_process_alone(rig: Rig, seed: int) -> None:
    source = random.Random(seed)
    async with rig.collecting() as collector:
        peer = rig.peer(collector)
        await peer.join(("env.RANK", 9))
        (ring,) = peer.descriptors
        with mmap.mmap(ring, os.fstat(ring).st_size) as memory:
            job = await rig.start(collector, rig.job, 1)
            while job.poll() is None:
                for _ in range(50):
                    where = source.choice([4096, 120 << 10, len(memory)])
                    start = source.randrange(where - 64)
                    memory[start : start + 64] = source.randbytes(64)
                peer.send("wake")
                await anyio.sleep(0.001)
            memory[:4096] = bytes(4096)
        await rig.until(lambda: any(process.record.ended for process in collector.processes))

    assert job.returncode == 0
    (honest,) = [process for process in collector.processes if process.record.rank == 1]
    assert (whole_files(honest), honest.whole) == (16, True)


async def test_a_hostile_process_cannot_keep_the_collector_from_ending(rig: Rig) -> None:
    async with rig.collecting() as collector:
        peer = rig.peer(collector)
        await peer.join()
        (ring,) = peer.descriptors
        with mmap.mmap(ring, os.fstat(ring).st_size) as memory:
            memory[:] = b"\xff" * len(memory)
        peer.send("wake")

    (process,) = collector.processes
    assert process.record.ended is not None


def live_sessions() -> int:
    gc.collect()
    return sum(isinstance(thing, Session) for thing in gc.get_objects())


async def test_nothing_but_a_report_is_kept_of_a_process_that_has_left(rig: Rig) -> None:
    before = live_sessions()
    async with rig.collecting() as collector:
        job = await rig.start(collector, rig.job, 0)
        await run_sync(job.wait)
        await collector.idle()

        (process,) = collector.processes
        assert whole_files(process) == 16
        assert live_sessions() == before


async def test_shares_are_given_back_when_processes_end(rig: Rig) -> None:
    async with rig.collecting(buffer_bytes=4 << 20) as collector:
        for rank in range(3):
            peer = rig.peer(collector)
            assert (await peer.join(("env.RANK", rank))).kind == "ring"
            peer.send("bye")
            peer.close()
            await collector_is_free(rig, collector, rank)

    assert collector.whole


async def collector_is_free(rig: Rig, collector: Collector, rank: int) -> None:
    def is_finished() -> bool:
        process = collector.processes[rank]
        return has_begun(process) and process.report.failure is None and not collector_busy(collector)

    await rig.until(is_finished)


def collector_busy(collector: Collector) -> bool:
    return collector._service._shares.free < 4 << 20


async def test_a_directory_that_cannot_take_captures_is_refused_before_a_process_joins(rig: Rig) -> None:
    await run_sync(lambda: rig.out.write_text("a file"))

    with pytest.raises(DestinationError, match="is a file"):
        async with rig.collecting():
            pytest.fail("was entered")


async def test_a_sink_that_cannot_write_is_refused_before_a_process_joins(rig: Rig, tmp_path: Path) -> None:
    await run_sync(lambda: (tmp_path / "file").write_text("in the place of a directory"))

    with pytest.raises(SinkError, match="Not a directory; remove what is in the place"):
        async with rig.collecting(sinks=[f"zstd:{tmp_path / 'file'}"]):
            pytest.fail("was entered")


async def test_a_process_whose_capture_cannot_be_opened_is_told_to_stop_and_listed(rig: Rig) -> None:
    async with rig.collecting(sinks=["stats:?format=nosuch"]) as collector:
        peer = rig.peer(collector)

        kinds = [(await peer.join(("env.RANK", 0))).kind, (await peer.answer()).kind]

    (record,) = await rig.records()
    assert kinds == ["ring", "end"]
    assert record.directory == ""
    assert "nosuch" in (record.problem or "")
    assert not collector.whole
    assert not await run_sync((rig.out / "rank-0").exists)


async def test_two_collectors_do_not_listen_at_the_same_place(rig: Rig, tmp_path: Path) -> None:
    async with rig.collecting(socket_path=tmp_path / "socket"):
        with pytest.raises(CollectorError, match="another collector listens"):
            async with open_collector(tmp_path / "other", socket_path=tmp_path / "socket"):
                pytest.fail("was entered")


async def test_a_cancelled_collector_ends_and_keeps_what_was_finished(rig: Rig) -> None:
    with anyio.CancelScope() as scope:
        async with rig.collecting() as collector:
            job = await rig.start(collector, _SLOW_JOB, 0)
            await rig.until(lambda: collector.processes and whole_files(collector.processes[0]) > 20)
            scope.cancel()
            await anyio.sleep_forever()

    (record,) = await rig.records()
    assert record.ending == "still running when its capture ended"
    assert whole_files(collector.processes[0]) > 20
    assert job.poll() is None


async def test_the_end_of_the_collector_leaves_a_job_running(rig: Rig) -> None:
    async with rig.collecting() as collector:
        job = await rig.start(collector, _SLOW_JOB, 0)
        await rig.until(lambda: collector.processes and whole_files(collector.processes[0]) > 20)

    assert job.poll() is None
    assert set(collector.report.verdicts) <= {"complete", "never_closed", "lost"}
    assert (await rig.records())[0].ending == "still running when its capture ended"
