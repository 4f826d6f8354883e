"""What the server of a page answers, and to whom."""

from __future__ import annotations

import json
import shlex
import shutil
import struct
from pathlib import Path
from typing import Any

import anyio
import httpx
import numpy as np
import pytest
from tests.conftest import CaptureBuilder, DumpBuilder

from dumpstream.cli import main
from dumpstream.format.verdict import Verdict
from dumpstream.simulation import Workload
from dumpstream.view.app import make_app
from dumpstream.view.watch import Watch

_FILES = [*Workload.parse("models=1,ops=3,steps=2,nan=2@1,tensor_bytes=64-500").expected_files("/dump")]
_TOKEN, _TICKET = "secret", "once"


class _Client:
    """A browser that has opened the page, unless it is not *opened* yet."""

    def __init__(self, run: Path, *, opened: bool = True) -> None:
        watch = Watch(run)
        watch.open()
        self._transport = httpx.ASGITransport(make_app(watch, _TOKEN, _TICKET))
        self._cookies = httpx.Cookies()
        if opened:
            self.get(f"/?token={_TOKEN}")

    def forget(self) -> None:
        """Become another browser."""
        self._cookies = httpx.Cookies()

    def get(self, path: str) -> httpx.Response:
        async def ask() -> httpx.Response:
            async with httpx.AsyncClient(
                transport=self._transport, base_url="http://127.0.0.1:8000", cookies=self._cookies
            ) as client:
                answer = await client.get(path)
                self._cookies = client.cookies
                return answer

        return anyio.run(ask)


def _header(client: _Client) -> dict[str, Any]:
    data = client.get("/api/run").content
    (length,) = struct.unpack("<I", data[:4])
    header: dict[str, Any] = json.loads(data[4 : 4 + length])
    return header


@pytest.fixture
def run(builder: CaptureBuilder) -> Path:
    for file in _FILES:
        builder.add(file.name, file.data, Verdict.COMPLETE)
    return builder.finish()


@pytest.fixture
def client(run: Path) -> _Client:
    return _Client(run)


def test_what_other_users_see_in_the_arguments_of_a_browser_opens_the_page_once(run: Path) -> None:
    client = _Client(run, opened=False)

    assert client.get(f"/?token={_TICKET}").status_code == 303
    assert client.get("/api/run").status_code == 200
    client.forget()
    assert client.get(f"/?token={_TICKET}").status_code == 403
    assert client.get(f"/?token={_TOKEN}").status_code == 303


def test_token_becomes_a_cookie_that_other_sites_cannot_use(run: Path) -> None:
    answer = _Client(run, opened=False).get(f"/?token={_TOKEN}")

    assert answer.status_code == 303
    assert "token" not in answer.headers["location"]
    cookie = answer.headers["set-cookie"].lower()
    assert "httponly" in cookie
    assert "samesite=strict" in cookie


def test_every_answer_has_the_policy(client: _Client) -> None:
    for path in (
        "/",
        "/main.js",
        "/api/run",
        "/api/tensor/0",
        "/api/tensor/99999",
        "/nothing",
        f"/?token={_TOKEN}",
    ):
        headers = client.get(path).headers
        assert headers.get("content-security-policy", "").startswith(
            "default-src 'none'; script-src 'self'"
        ), path
        assert headers["referrer-policy"] == "no-referrer"
        assert headers["cache-control"] == "no-store"


@pytest.mark.parametrize("row", [10**6, 2**31, 2**63, 10**40])
def test_row_out_of_range_is_not_found(client: _Client, row: int) -> None:
    assert client.get(f"/api/tensor/{row}").status_code == 404
    assert client.get(f"/api/content/{row}").status_code == 404


def test_values_that_are_not_finite_are_answered(client: _Client) -> None:
    for row in range(len(_FILES)):
        for path in (f"/api/tensor/{row}", f"/api/content/{row}"):
            answer = client.get(path)
            assert answer.status_code == 200
            json.loads(answer.text, parse_constant=pytest.fail)


def test_names_that_are_not_utf_8_are_answered(builder: CaptureBuilder) -> None:
    builder.add(_FILES[0].name.replace("layer_0", "layer\udcff\x01"), _FILES[0].data, Verdict.COMPLETE)
    client = _Client(builder.finish())

    assert _header(client)["operators"]
    for path in ("/api/tensor/0", "/api/content/0"):
        assert client.get(path).status_code == 200, path


def test_extract_command_finds_the_file_whatever_its_name_is(
    tmp_path: Path, dump: DumpBuilder, monkeypatch: pytest.MonkeyPatch
) -> None:
    builder = CaptureBuilder(tmp_path / "a run's [1]")
    data = dump.output(np.ones(4, np.float32)).build()
    builder.add("Add.it's [0] $HOME*.1.2.3", data, Verdict.COMPLETE)
    builder.add("Add.it's [0] $HOME and more.1.2.3", data, Verdict.COMPLETE)
    client = _Client(builder.finish())
    command = shlex.split(client.get("/api/tensor/0").json()["extract"])
    monkeypatch.chdir(tmp_path)

    assert main(command[1:]) == 0

    (found,) = (it for it in (tmp_path / "dumps").rglob("*") if it.is_file())
    assert found.read_bytes() == data


def test_exponents_of_the_values_are_counted(builder: CaptureBuilder, dump: DumpBuilder) -> None:
    values = np.array([0, 1, 1.5, -4, np.nan, np.inf], np.float32)
    builder.add("Add.add.1.2.3", dump.output(values).build(), Verdict.COMPLETE)

    found = _Client(builder.finish()).get("/api/content/0").json()["tensor"]["exponents"]

    assert found == {"low": 0, "width": 1, "counts": [2, 0, 1], "zeros": 1}


def test_run_that_is_deleted_while_it_is_shown_is_said(client: _Client, run: Path) -> None:
    shutil.rmtree(run)

    answer = client.get("/api/content/0")

    assert answer.status_code == 409
    assert str(run) in answer.text
    assert client.get("/api/run").status_code == 200


def test_files_of_a_directory_are_opened(tmp_path: Path) -> None:
    for file in _FILES:
        place = tmp_path / file.name.lstrip("/")
        place.parent.mkdir(parents=True, exist_ok=True)
        place.write_bytes(file.data)
    client = _Client(tmp_path)

    assert client.get("/api/tensor/0").json()["extract"] is None
    assert client.get("/api/content/0").json()["tensor"]["first"]


def test_change_between_two_waits_is_not_missed(run: Path) -> None:
    watch = Watch(run)
    seen = watch.told
    watch.status = {**watch.status, "problem": "the store does not answer"}

    assert anyio.run(watch.changed, seen) == watch.told


def test_row_of_an_earlier_version_of_the_run_is_not_answered(client: _Client) -> None:
    version = _header(client)["status"]["version"]

    for path in ("/api/tensor/0", "/api/content/0"):
        assert client.get(f"{path}?version={version}").status_code == 200
        assert client.get(f"{path}?version=earlier").status_code == 204
