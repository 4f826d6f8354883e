"""Locations that cannot be used, in every command that takes one."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest
from anyio.to_thread import run_sync

from dumpstream import StoredCapture, StoreError, open_capture
from dumpstream._errors import SinkError
from dumpstream.cli import main
from dumpstream.outside.collector import open_collector
from dumpstream.outside.recovery import recover
from dumpstream.reading.inputs import find_inputs
from dumpstream.run.preparation import check_sink
from dumpstream.system.location import as_location

if TYPE_CHECKING:
    from pathlib import Path

_BAD = ["http://host/run", "foo:/run", "file:/run", "s3:/bucket/run"]
_READING = ["ls", "verify", "show", "stats", "overflow", "watch"]


def refused(
    capsys: pytest.CaptureFixture[str], directory: Path, *arguments: str, code: int | None = None
) -> str:
    """Return the line that the command says, which refuses with *code* and leaves nothing in *directory*."""
    before = sorted(directory.iterdir())
    try:
        ended = main([*arguments])
    except SystemExit as exc:
        ended = int(exc.code or 0)
    (said,) = capsys.readouterr().err.splitlines()
    assert ended in ({1, 2} if code is None else {code})
    assert sorted(directory.iterdir()) == before
    return said


@pytest.fixture(autouse=True)
def here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    return tmp_path


@pytest.mark.parametrize("url", _BAD)
@pytest.mark.parametrize(
    "command",
    [
        *([command] for command in _READING),
        ["stats", "run"],
        ["convert", "--out", "out"],
        ["extract", "--out", "out"],
        ["recover"],
        ["upload"],
        ["capture", "--simulate", "--out"],
        ["collect", "--socket", "socket", "--out"],
        ["capture", "--simulate", "--out", "run", "--spill"],
        ["capture", "--simulate", "--out", "run", "--buffer-file"],
        ["extract", "run", "--out"],
        ["convert", "run", "--out"],
        ["stats", "run", "--out"],
        ["config", "new", "--out"],
    ],
    ids=" ".join,
)
def test_text_that_looks_like_a_url_is_refused_at_once(
    command: list[str], url: str, here: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    said = refused(capsys, here, *command, url, code=2)

    assert f"{url.partition(':')[0]}:... is not a location; " in said


@pytest.mark.parametrize("source", [["--simulate"], ["--", "true"]], ids=["simulated", "command"])
@pytest.mark.parametrize(
    ("sink", "remedy"),
    [
        ("zstd:s3://bucket/run?endpoint=http://host", "for a store write --sink s3://..."),
        ("stats:s3://bucket/run", "for a store write --out s3://... --sink stats:"),
        ("stats:obs://bucket/run?histogram=on", "for a store write --out obs://... --sink stats:"),
        ("zstd:foo:/run", "zstd: foo:... is not a location; "),
        ("stats:http://run?format=csv", "stats: http:... is not a location; "),
        ("s3:/bucket/run", "s3://bucket/prefix"),
        ("obs:bucket", "obs://bucket/prefix"),
        ("foo://bucket/run", "no sink 'foo'"),
        ("http://host", "no sink 'http'"),
    ],
)
def test_sink_that_cannot_write_where_it_is_to_is_refused_at_once(
    sink: str, remedy: str, source: list[str], here: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    said = refused(capsys, here, "capture", "--out", "run", "--sink", sink, *source)

    assert remedy in said


def test_sink_at_the_destination_itself_is_refused_with_the_one_to_write() -> None:
    url = "s3://bucket/run?endpoint=http://127.0.0.1:9"

    with pytest.raises(
        SinkError, match="is where the capture itself is; to store files there write --sink zstd:"
    ):
        check_sink(url, as_location(url))


@pytest.mark.parametrize(
    "command",
    [
        ["extract", "run", "--out"],
        ["convert", "run", "--out"],
        ["stats", "run", "--out"],
        ["upload"],
        ["capture", "--simulate", "--out", "run", "--spill"],
        ["collect", "--out", "run", "--socket"],
    ],
    ids=" ".join,
)
def test_url_is_refused_where_only_a_path_can_be_used(
    command: list[str], here: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    for url, scheme in (("s3://bucket/run", "s3"), ("obs:/bucket/run", "obs"), ("http://host/run", "http")):
        said = refused(capsys, here, *command, url)

        assert f"{scheme}:... is not a location; it must be a path on this machine" in said


def test_obs_without_an_endpoint_is_refused_with_the_remedy(
    here: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in ("OBS_ENDPOINT", "AWS_ENDPOINT_URL", "AWS_REGION", "AWS_DEFAULT_REGION", "AWS_PROFILE"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("AWS_CONFIG_FILE", str(here / "none"))
    monkeypatch.setenv("XDG_STATE_HOME", str(here.parent / "state"))

    for command in (["ls"], ["stats"], ["capture", "--simulate", "--out"]):
        said = refused(capsys, here, *command, "obs://bucket/run")
        assert "write obs://bucket/prefix?region=cn-north-4 or ?endpoint=https://HOST" in said


@pytest.mark.anyio
@pytest.mark.parametrize("url", _BAD)
async def test_library_refuses_what_the_commands_refuse(url: str, here: Path) -> None:
    with pytest.raises(StoreError, match="is not a location"):
        StoredCapture.open(url)
    with pytest.raises(StoreError, match="is not a location"):
        list(find_inputs([here / "run", url]))  # type: ignore[list-item]  # a user may pass text
    with pytest.raises(StoreError, match="is not a location"):
        await open_capture(url).__aenter__()
    with pytest.raises(StoreError, match="is not a location"):
        await open_capture("run", spill=url).__aenter__()
    with pytest.raises(StoreError, match="is not a location"):
        await open_collector(url).__aenter__()
    with pytest.raises(StoreError, match="is not a location"):
        await recover(url)
    with pytest.raises(SinkError, match="is not a location"):
        await recover("run", sinks=[f"zstd:{url}"])

    assert not await run_sync(lambda: list(here.iterdir()))
