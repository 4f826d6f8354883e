"""A browser, and runs to look at."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
from playwright.sync_api import Browser, BrowserContext, Page, sync_playwright
from tests.conftest import LIMIT_S

LIMIT_MS = 1000 * LIMIT_S
#: Without these, chromium looks for its maker's servers at each start.
_FLAGS = (
    "--no-sandbox",
    "--disable-gpu",
    "--disable-background-networking",
    "--disable-component-update",
    "--disable-sync",
    "--no-first-run",
)


@pytest.fixture(autouse=True)
def _nothing_blocks_the_loop() -> None:
    """Let the browser's driver block its own loop."""


@pytest.fixture(scope="session")
def browser() -> Iterator[Browser]:
    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(
            executable_path=os.environ.get("CHROMIUM", "/usr/bin/chromium"), args=[*_FLAGS]
        )
        yield browser
        browser.close()


@contextmanager
def opened(browser: Browser, address: str, **settings: object) -> Iterator[Page]:
    """Open *address*, and see to it that the page has logged no error when the block ends."""
    context: BrowserContext = browser.new_context(**settings)  # type: ignore[arg-type]
    context.set_default_timeout(LIMIT_MS)
    page = context.new_page()
    problems: list[str] = []
    page.on("console", lambda message: problems.append(message.text) if message.type == "error" else None)
    page.on("pageerror", lambda error: problems.append(str(error)))
    page.goto(address)
    page.wait_for_selector("body[data-ready]")
    yield page
    context.close()
    assert not problems


def dumpstream(*arguments: object) -> list[str]:
    return [sys.executable, "-m", "dumpstream", *map(str, arguments)]


@contextmanager
def viewed(run: Path, *arguments: object) -> Iterator[str]:
    """Serve the page of *run*, and yield its address."""
    command = dumpstream("view", run, "--no-browser", *arguments)
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as server:
        assert server.stdout is not None
        try:
            yield server.stdout.readline().strip()
        finally:
            server.terminate()
            ended = server.wait(LIMIT_S)
        assert ended == 143


@pytest.fixture(scope="session")
def story(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return a capture of four ranks, of which rank 2 makes a NaN at step 3."""
    run = tmp_path_factory.mktemp("story") / "run"
    workload = "models=1,ops=8,steps=6,flow=on,tensor_bytes=1024-4096"
    job = dumpstream("simulate", "--ranks", 4, "--workload", workload, "--fault", "rank2:nan=3@3")
    done = subprocess.run(
        dumpstream("capture", "--out", run, "--quiet", "--", *job),
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    return run
