"""The page of a run in a real browser: against another run, live, dead, interrupted, measured, aggregated."""

from __future__ import annotations

import os
import signal
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

import pytest
from playwright.sync_api import Browser, expect
from tests.conftest import LIMIT_S, CaptureBuilder
from tests.view.conftest import LIMIT_MS, dumpstream, opened, viewed
from tests.view.test_against import captured
from tests.view.test_page import colour_at, painted, wait_for_file

from dumpstream.format.verdict import Verdict
from dumpstream.simulation import Workload

pytestmark = pytest.mark.page

_NAN, _LOST = (214, 24, 96), (128, 70, 220)
_WORKLOAD = "models=1,ops=8,steps=6,flow=on,tensor_bytes=1024-4096"


@pytest.fixture(scope="module")
def runs(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Path]:
    """Return a run with an error in one operator, and the same without."""
    directory = tmp_path_factory.mktemp("against")
    return captured(directory / "mine", f"{_WORKLOAD},perturb=3@2:0.01"), captured(
        directory / "golden", _WORKLOAD
    )


@pytest.fixture(scope="module")
def compared(runs: tuple[Path, Path]) -> Iterator[str]:
    mine, golden = runs
    with viewed(mine, "--against", golden) as address:
        yield address


@contextmanager
def killed_at_the_end(command: list[str]) -> Iterator[subprocess.Popen[bytes]]:
    """Run *command*, and kill it and the job that it has started, which goes on if only the capture dies."""
    with subprocess.Popen(command, stderr=subprocess.DEVNULL, start_new_session=True) as process:
        try:
            yield process
        finally:
            with suppress(ProcessLookupError):
                os.killpg(process.pid, signal.SIGKILL)


def test_difference_from_another_run_colours_the_map(browser: Browser, compared: str) -> None:
    with opened(browser, compared) as page:
        expect(page.locator("#difference")).to_contain_text("layer_3_")
        page.select_option("#colour", "difference")
        painted(page)

        identical = colour_at(page, 1, 3, 8, 6)
        assert colour_at(page, 2, 3, 8, 6) != identical
        assert colour_at(page, 2, 2, 8, 6) == identical


def test_tensor_has_the_numbers_of_both_sides_and_the_verdict(browser: Browser, compared: str) -> None:
    with opened(browser, compared) as page:
        page.click("#difference button")

        expect(page.locator("#panel .verdict")).to_contain_text("different")
        cells = page.locator("#panel .sides tbody tr").first.locator("td")
        expect(cells).to_have_count(2)
        assert cells.nth(0).inner_text() != cells.nth(1).inner_text()


def test_exported_file_has_the_difference_too(
    browser: Browser, runs: tuple[Path, Path], tmp_path: Path
) -> None:
    file = tmp_path / "report.html"
    command = dumpstream("view", runs[0], "--against", runs[1], "--export", file)
    subprocess.run(command, check=True, capture_output=True)

    with opened(browser, file.as_uri(), offline=True) as page:
        page.select_option("#colour", "difference")
        page.click("#difference button")
        expect(page.locator("#panel .verdict")).to_contain_text("different")
        painted(page)
        assert colour_at(page, 2, 3, 8, 6) != colour_at(page, 1, 3, 8, 6)


def test_running_job_shows_its_ring_rate_and_alerts_and_that_it_died(
    browser: Browser, tmp_path: Path
) -> None:
    run = tmp_path / "run"
    workload = "models=1,ops=6,flow=on,tensor_bytes=1024-2048,rate=100000"
    job = dumpstream("simulate", "--ranks", 2, "--workload", workload, "--steps", 100000)
    job += ["--fault", "rank1:nan=2@1"]
    with killed_at_the_end(
        dumpstream("capture", "--out", run, "--quiet", "--alert", "--", *job)
    ) as capturing:
        wait_for_file(run, capturing)
        with viewed(run) as address, opened(browser, address) as page:
            row = page.locator("#processes tbody tr", has_text="rank-1")
            expect(row.locator("meter")).to_have_attribute("aria-label", "ring 0 % full", timeout=LIMIT_MS)
            expect(row).to_contain_text("/s")
            expect(page.locator("#missing")).to_contain_text("more may follow")
            page.click("#alerts button", timeout=LIMIT_MS)
            expect(page.locator("#panel h3")).to_contain_text("layer_2_")
            capturing.send_signal(signal.SIGKILL)
            capturing.wait(LIMIT_S)
            expect(page.locator("#state")).to_have_text("interrupted", timeout=LIMIT_MS)
            expect(page.locator("#notice")).to_contain_text("interrupted")
            expect(page.locator("#processes meter")).to_have_count(0)


def test_interrupted_run_is_shown_and_called_so(browser: Browser, builder: CaptureBuilder) -> None:
    for file in Workload.parse(_WORKLOAD).expected_files("/dump"):
        builder.add(file.name, file.data, Verdict.COMPLETE)

    with viewed(builder.interrupt()) as address, opened(browser, address) as page:
        expect(page.locator("#notice")).to_contain_text("interrupted")
        expect(page.locator("#totals")).to_contain_text("tensors")


def test_statistics_are_offered_and_computed_with_progress(browser: Browser, tmp_path: Path) -> None:
    size = 9 << 20
    run = captured(tmp_path / "run", f"models=1,ops=4,steps=2,tensor_bytes={size}-{size},nan=1@1")

    with viewed(run) as address, opened(browser, address) as page:
        expect(page.locator("#offer")).to_contain_text("no statistics")
        page.click("#offer button")

        expect(page.locator("#offer")).to_be_hidden()
        expect(page.locator("#sentence")).to_contain_text("layer_1_", timeout=LIMIT_MS)
        painted(page)
        assert colour_at(page, 1, 1, 4, 2) == _NAN


def test_run_that_has_nothing_yet_says_so(browser: Browser, builder: CaptureBuilder) -> None:
    with viewed(builder.finish()) as address, opened(browser, address) as page:
        expect(page.locator("#notice")).to_contain_text("No tensor was captured.")
        expect(page.locator("#map")).to_be_hidden()


def test_one_bad_cell_of_very_many_is_seen_in_every_arrangement(browser: Browser, tmp_path: Path) -> None:
    run = captured(tmp_path / "run", "models=1,ops=1500,steps=2,tensor_bytes=16-64,nan=777@1")

    with viewed(run) as address, opened(browser, address) as page:
        for lines in ("operators", "ranks", "models"):
            page.select_option("#lines", lines)
            painted(page)
            seen = page.evaluate(
                """([red, green, blue]) => {
                    const { width, height } = document.getElementById("map");
                    const pen = document.getElementById("map").getContext("2d");
                    const { data } = pen.getImageData(0, 0, width, height);
                    for (let i = 0; i < data.length; i += 4)
                        if (data[i] === red && data[i + 1] === green && data[i + 2] === blue) return true;
                    return false;
                }""",
                [*_NAN],
            )
            assert seen, lines


def test_lost_and_not_captured_have_colours_of_their_own(browser: Browser, builder: CaptureBuilder) -> None:
    files = [*Workload.parse("models=1,ops=3,steps=2,tensor_bytes=64-128").expected_files("/dump")]
    for number, file in enumerate(files):
        if number == 1:
            builder.add(file.name, file.data[:40], Verdict.SHORT)
        elif number != 5:
            builder.add(file.name, file.data, Verdict.COMPLETE)

    with viewed(builder.finish()) as address, opened(browser, address) as page:
        painted(page)
        fine, lost, absent = (colour_at(page, *at, 3, 2) for at in ((0, 0), (0, 1), (1, 2)))

    assert lost == _LOST
    assert len({fine, lost, absent}) == 3
    assert absent == (226, 231, 238)


@pytest.mark.parametrize("colour", ["bad", "magnitude", "drift", "lost"])
def test_lost_file_has_the_same_colour_whatever_the_others_are_coloured_by(
    browser: Browser, builder: CaptureBuilder, colour: str
) -> None:
    files = [*Workload.parse("models=1,ops=3,steps=2,tensor_bytes=64-128").expected_files("/dump")]
    for number, file in enumerate(files):
        data, verdict = (file.data[:40], Verdict.SHORT) if number == 1 else (file.data, Verdict.COMPLETE)
        builder.add(file.name, data, verdict)

    with viewed(builder.finish()) as address, opened(browser, f"{address}#colour={colour}") as page:
        page.select_option("#colour", colour)
        painted(page)
        assert colour_at(page, 0, 1, 3, 2) == _LOST


@pytest.mark.parametrize("colour", ["magnitude", "drift"])
def test_nan_keeps_its_colour_beside_numbers(browser: Browser, builder: CaptureBuilder, colour: str) -> None:
    for file in Workload.parse("models=1,ops=3,steps=4,tensor_bytes=64-128,nan=1@2").expected_files("/dump"):
        builder.add(file.name, file.data, Verdict.COMPLETE)

    with viewed(builder.finish()) as address, opened(browser, address) as page:
        for lines, number, of in (("operators", 1, 3), ("ranks", 0, 1)):
            page.select_option("#lines", lines)
            page.select_option("#colour", colour)
            painted(page)
            assert colour_at(page, 2, number, of, 4) == _NAN


def test_bad_place_that_is_too_small_to_be_pointed_at_is_opened_by_a_click_near_it(
    browser: Browser, tmp_path: Path
) -> None:
    run = captured(tmp_path / "run", "models=1,ops=1500,steps=2,tensor_bytes=16-64,nan=777@1")
    size = """([red, green, blue]) => {
        const canvas = document.getElementById("map");
        const { width, height } = canvas;
        const { data } = canvas.getContext("2d").getImageData(0, 0, width, height);
        const lines = [...Array(height).keys()].filter((y) => {
            const i = (y * width + width - 20) * 4;
            return data[i] === red && data[i + 1] === green && data[i + 2] === blue;
        });
        return [lines.length, lines[0] * canvas.clientHeight / height];
    }"""

    with viewed(run) as address, opened(browser, address) as page:
        painted(page)
        height, top = page.evaluate(size, [*_NAN])
        assert 3 <= height <= 8
        box = page.locator("#map").bounding_box()
        assert box is not None
        page.mouse.click(box["x"] + box["width"] - 20, box["y"] + top + 0.5)

        expect(page.locator("#panel h3")).to_contain_text("layer_777_")


def test_filters_are_in_the_address_by_name_and_list_what_they_leave(browser: Browser, story: Path) -> None:
    with viewed(story) as address, opened(browser, address) as page:
        expect(page.locator("#bad-count")).not_to_have_text("")
        page.select_option("#rank", label="rank 1")
        expect(page.locator("#bad-count")).to_have_text("")
        assert "rank=rank+1" in page.url
        listed = page.locator("#bad").inner_text()
        second = page.context.new_page()
        second.goto(page.url)
        second.wait_for_selector("body[data-ready]")

        assert second.locator("#rank").input_value() == "rank 1"
        assert second.locator("#bad").inner_text() == listed


def test_wheel_zooms_in_and_scrolls_the_page_when_the_whole_map_is_there(
    browser: Browser, story: Path
) -> None:
    with viewed(story) as address, opened(browser, address) as page:
        page.hover("#map")
        page.mouse.wheel(0, 300)
        page.wait_for_function("() => scrollY > 0")
        page.evaluate("() => scrollTo(0, 0)")
        page.hover("#map")
        page.mouse.wheel(0, -300)
        page.wait_for_url("**zoom=**")


def test_label_of_a_process_is_shown_as_it_is(browser: Browser, story: Path) -> None:
    with viewed(story) as address, opened(browser, address) as page:
        expect(page.locator("#processes tbody th")).to_have_text([f"rank-{rank}" for rank in range(4)])


def test_focus_goes_from_the_controls_to_the_map_and_the_panel(browser: Browser, story: Path) -> None:
    with viewed(story) as address, opened(browser, address) as page:
        page.focus("#lines")
        seen = []
        for _ in range(9):
            page.keyboard.press("Tab")
            seen.append(page.evaluate("document.activeElement.id"))

    assert seen[:8] == ["colour", "rank", "model", "find", "closer", "farther", "reset", "map"]
    assert seen[8] != "map"
