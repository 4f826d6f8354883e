"""The examples that are one file or one package each."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from importlib.util import find_spec
from pathlib import Path

import pytest
from tests.conftest import LIMIT_S

_EXAMPLES = Path(__file__).parent.parent.parent / "examples"

_USE_APP = """
from fastapi.testclient import TestClient
from fastapi_lifespan import app

with TestClient(app) as client:
    trained = client.get("/train").json()
    progress = client.get("/progress").json()
print(trained["files"], progress["whole"], app.state.capture.report.files)
"""

_CHECK_SINK = """
import sys
import anyio
from pathlib import Path
from dumpstream import open_capture, Chunk, ChunkSource, load_sink, SinkSettings


async def main():
    chunks = [Chunk("small", b"123", is_last=True), Chunk("open", b"1"), Chunk("new\\nline", bytes(3 << 20))]
    sinks = ["zstd:", "listing:"]
    async with open_capture(sys.argv[1], source=ChunkSource(chunks), sinks=sinks) as capture:
        pass
    print(Path(sys.argv[1], "listing.tsv").read_text(), end="")


anyio.run(main)
"""


def run(*command: str | Path, **environment: str) -> str:
    done = subprocess.run(
        command,
        capture_output=True,
        text=True,
        timeout=LIMIT_S,
        check=False,
        env={**os.environ, **environment},
    )
    assert done.returncode == 0, done.stderr
    return done.stdout


def test_every_example_is_named_in_the_documents() -> None:
    pages = "".join(page.read_text() for page in (_EXAMPLES.parent / "docs").glob("*.md"))

    examples = [path.name for path in _EXAMPLES.iterdir() if not path.name.startswith("__")]

    assert [name for name in examples if f"examples/{name}" not in pages] == []


def test_the_consumer_measures_every_tensor_of_every_file() -> None:
    lines = run(sys.executable, _EXAMPLES / "own_statistic.py").splitlines()

    (summary,) = [number for number, line in enumerate(lines) if line.startswith("48 files, 0 skipped")]
    assert len(lines) == summary + 6
    assert summary >= 48
    assert all(
        re.fullmatch(r" *\d+\.\d\d% zeros in \S+ (input|output) \d+", line) for line in lines[:summary]
    )


def test_the_sink_of_another_package_is_found_by_its_name(tmp_path: Path) -> None:
    package, target = tmp_path / "package", tmp_path / "installed"
    run("cp", "-r", _EXAMPLES / "sink_package", package)  # building leaves files beside the source
    options = ["--quiet", "--no-deps", "--no-build-isolation", "--no-index", "--target", str(target)]
    run(sys.executable, "-m", "pip", "install", "--disable-pip-version-check", *options, package)

    listed = run(sys.executable, "-c", _CHECK_SINK, tmp_path / "run", PYTHONPATH=str(target))

    assert sorted(listed.splitlines()) == [
        "1\tnever_closed\topen",
        "3\tunparsed\tsmall",
        "3145728\tnever_closed\tnew\\nline",
    ]


@pytest.mark.skipif(find_spec("fastapi") is None, reason="fastapi is not installed")
def test_a_capture_lives_as_long_as_a_fastapi_application(tmp_path: Path) -> None:
    output = run(
        sys.executable, "-c", _USE_APP, PYTHONPATH=str(_EXAMPLES), DUMPSTREAM_RUN=str(tmp_path / "run")
    )

    assert output == "16 True 16\n"


def test_the_fastapi_example_says_how_to_install_it() -> None:
    text = (_EXAMPLES / "fastapi_lifespan.py").read_text()
    compile(text, "fastapi_lifespan.py", "exec")

    assert "pip install fastapi" in text
