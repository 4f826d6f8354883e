"""The page of a run in a real browser: served, exported, live, narrow, dark, by keyboard, and hostile."""

from __future__ import annotations

import json
import re
import subprocess
from collections.abc import Iterator
from pathlib import Path
from time import monotonic, sleep

import pytest
from playwright.sync_api import Browser, Page, expect
from tests.conftest import LIMIT_S, CaptureBuilder
from tests.view.conftest import LIMIT_MS, dumpstream, opened, viewed

from dumpstream.format.verdict import Verdict
from dumpstream.simulation import Workload

pytestmark = pytest.mark.page

#: The colour of NaN on the map.
_NAN = (214, 24, 96)


@pytest.fixture(scope="module")
def address(story: Path) -> Iterator[str]:
    with viewed(story) as address:
        yield address


@pytest.fixture(scope="module")
def exported(story: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    file = tmp_path_factory.mktemp("exported") / "report.html"
    subprocess.run(dumpstream("view", story, "--export", file), check=True, capture_output=True)
    return file


def colour_at(page: Page, step: int, line: int, lines: int, steps: int) -> tuple[int, ...]:
    """Return the colour in the middle of a place on the map."""
    script = """([step, line, lines, steps]) => {
        const canvas = document.getElementById("map");
        const scale = canvas.width / canvas.clientWidth;
        const left = Number(canvas.dataset.left);
        const x = left + (step + 0.6) * (canvas.clientWidth - left - 4) / steps;
        const y = 7 + (line + 0.6) * (canvas.clientHeight - 31) / lines;
        return [...canvas.getContext("2d").getImageData(x * scale, y * scale, 1, 1).data].slice(0, 3);
    }"""
    return tuple(page.evaluate(script, [step, line, lines, steps]))


def painted(page: Page) -> None:
    """Wait until the map shows what was chosen."""
    page.evaluate("() => new Promise((done) => requestAnimationFrame(() => requestAnimationFrame(done)))")


def wait_for_file(run: Path, capturing: subprocess.Popen[bytes]) -> None:
    """Wait until a journal of *run* has a file."""
    deadline = monotonic() + LIMIT_S
    while not any(b'"file"' in it.read_bytes() for it in run.glob("*/journal.jsonl")):
        assert capturing.poll() is None
        assert monotonic() < deadline
        sleep(0.1)


def test_map_shows_the_nan_where_it_was_made(browser: Browser, address: str) -> None:
    with opened(browser, address) as page:
        page.select_option("#rank", label="rank 2")
        painted(page)

        assert colour_at(page, 3, 3, 8, 6) == _NAN
        assert colour_at(page, 2, 3, 8, 6) != _NAN
        assert colour_at(page, 3, 2, 8, 6) != _NAN


def test_sentence_leads_to_the_tensor_and_its_neighbours(browser: Browser, address: str) -> None:
    with opened(browser, address) as page:
        expect(page.locator("#sentence")).to_contain_text("Rank 2 made the first NaN: step 3")

        page.click("#sentence button")
        expect(page.locator("#panel h3")).to_have_text("layer_3_Add")
        expect(page.locator("#panel .where")).to_contain_text("step 3")
        expect(page.locator("#panel svg").first).to_be_visible()
        expect(page.locator("#panel .command")).to_contain_text("dumpstream extract")
        page.locator("#panel h4", has_text="Read by").locator("+ ul button").first.click()
        expect(page.locator("#panel .where")).to_contain_text("input")


def test_address_shows_the_same_thing_again(browser: Browser, address: str) -> None:
    with opened(browser, address) as page:
        page.select_option("#colour", "magnitude")
        page.fill("#find", "layer_3")
        page.click("#bad button")
        expect(page.locator("#panel h3")).to_be_visible()
        shown = page.locator("#panel .where").inner_text()

        page.reload()

        expect(page.locator("#colour")).to_have_value("magnitude")
        expect(page.locator("#find")).to_have_value("layer_3")
        expect(page.locator("#panel .where")).to_have_text(shown)


def test_zoom_is_in_the_address(browser: Browser, address: str) -> None:
    with opened(browser, address) as page:
        page.focus("#map")
        page.keyboard.press("+")
        page.wait_for_url(re.compile("zoom="))
        zoom = page.evaluate("location.hash")

        page.reload()
        page.wait_for_selector("body[data-ready]")

        assert page.evaluate("location.hash") == zoom
        page.click("#reset")
        page.wait_for_url(re.compile("^(?!.*zoom=)"))


def test_back_leads_to_the_tensor_before(browser: Browser, address: str) -> None:
    with opened(browser, address) as page:
        page.locator("#bad button").nth(0).click()
        expect(page.locator("#panel .where")).to_be_visible()
        first = page.locator("#panel .where").inner_text()
        page.locator("#bad button").nth(1).click()
        expect(page.locator("#panel .where")).not_to_have_text(first)

        page.go_back()

        expect(page.locator("#panel .where")).to_have_text(first)


@pytest.mark.parametrize("colour", ["bad", "magnitude", "drift", "lost"])
def test_next_bad_place_is_found_in_every_colour(browser: Browser, address: str, colour: str) -> None:
    with opened(browser, address) as page:
        page.select_option("#colour", colour)
        page.focus("#map")
        page.keyboard.press("n")

        expect(page.locator("#spoken")).to_contain_text("layer_3_Add, step 3")


def test_exponents_of_a_tensor_are_drawn(browser: Browser, address: str) -> None:
    with opened(browser, address) as page:
        page.click("#sentence button")

        expect(page.get_by_role("img", name="Histogram of the exponents")).to_be_visible()


def test_place_of_a_lost_file_says_so(browser: Browser, tmp_path: Path) -> None:
    builder = CaptureBuilder(tmp_path / "run")
    first, second, *rest = Workload.parse("models=1,ops=2,steps=2").expected_files("/dump")
    for file in (first, *rest):
        builder.add(file.name, file.data, Verdict.COMPLETE)
    builder.add(second.name, second.data[:40], Verdict.SHORT)

    with viewed(builder.finish()) as address, opened(browser, address) as page:
        expect(page.locator("#legend")).to_contain_text("not whole")
        page.focus("#map")
        for key in ("Home", "ArrowDown"):
            page.keyboard.press(key)

        expect(page.locator("#spoken")).to_contain_text("not whole")


def test_notice_goes_when_the_run_can_be_read_again(browser: Browser, tmp_path: Path) -> None:
    builder = CaptureBuilder(tmp_path / "run")
    for file in Workload.parse("models=1,ops=2").expected_files("/dump"):
        builder.add(file.name, file.data, Verdict.COMPLETE)
    run = builder.finish()

    with viewed(run) as address, opened(browser, address) as page:
        run.rename(tmp_path / "away")
        expect(page.locator("#notice")).to_be_visible()
        (tmp_path / "away").rename(run)
        expect(page.locator("#notice")).to_be_hidden()


def test_keyboard_walks_zooms_and_opens(browser: Browser, address: str) -> None:
    with opened(browser, address) as page:
        page.focus("#map")
        page.keyboard.press("n")
        expect(page.locator("#spoken")).to_contain_text("NaN")
        page.keyboard.press("Enter")
        expect(page.locator("#panel h3")).to_be_visible()
        expect(page.locator("#panel")).to_be_focused()
        page.keyboard.press("Escape")
        expect(page.locator("#map")).to_be_focused()
        before = page.locator("#spoken").inner_text()
        page.keyboard.press("ArrowRight")
        expect(page.locator("#spoken")).not_to_have_text(before)
        for key in ("+", "-", "0"):
            page.keyboard.press(key)


def test_every_control_has_a_label(browser: Browser, address: str) -> None:
    with opened(browser, address) as page:
        names = page.evaluate(
            """() => [...document.querySelectorAll("select, input, button, canvas")].map(
                (it) => it.ariaLabel || it.labels?.[0]?.textContent || it.textContent)"""
        )

        assert all(name.strip() for name in names)


@pytest.mark.parametrize("scheme", ["light", "dark"])
@pytest.mark.parametrize("width", [390, 1280])
def test_page_fits_the_screen(browser: Browser, address: str, scheme: str, width: int) -> None:
    with opened(browser, address, viewport={"width": width, "height": 800}, color_scheme=scheme) as page:
        page.click("#sentence button")
        expect(page.locator("#panel .command")).to_be_visible()

        assert page.evaluate("document.documentElement.scrollWidth") <= width
        ground = page.evaluate("getComputedStyle(document.body).backgroundColor")
        assert (ground == "rgb(16, 20, 27)") == (scheme == "dark")


def test_exported_file_needs_no_network(browser: Browser, exported: Path) -> None:
    with opened(browser, exported.as_uri(), offline=True) as page:
        expect(page.locator("#sentence")).to_contain_text("Rank 2 made the first NaN")

        page.click("#sentence button")
        expect(page.locator("#panel h3")).to_have_text("layer_3_Add")
        expect(page.locator("#panel .values")).to_be_visible()


def test_page_without_the_token_is_refused(browser: Browser, address: str) -> None:
    context = browser.new_context()
    plain = address.partition("?")[0]
    for path in ("", "main.js", "api/run", "api/tensor/0", "api/events", "?token=wrong"):
        answer = context.request.get(plain + path)
        assert answer.status == 403, path
    context.close()


def test_nothing_but_the_page_is_served(browser: Browser, address: str) -> None:
    with opened(browser, address) as page:
        base = page.url.partition("#")[0]
        for path in ("manifest.json", "..%2f..%2fetc%2fpasswd", "%2e%2e/journal.jsonl", "__init__.py"):
            assert page.request.get(base + path).status == 404, path
        assert page.request.get(base + "api/tensor/999999999").status == 404


def test_names_of_a_hostile_capture_are_text(browser: Browser, tmp_path: Path) -> None:
    builder = CaptureBuilder(tmp_path / "run<img src=x onerror=alert(1)>")
    files = [*Workload.parse("models=1,ops=2,nan=1").expected_files("/dump")]
    markup = "<img src=x onerror=document['title']='stolen'><script>document['title']='stolen'<"
    for file in files:
        builder.add(file.name.replace("layer_1_", f"layer_1_{markup}"), file.data, Verdict.COMPLETE)
    run = builder.finish()
    exported = tmp_path / "report.html"
    subprocess.run(dumpstream("view", run, "--export", exported), check=True, capture_output=True)

    with viewed(run) as address:
        for place in (address, exported.as_uri()):
            with opened(browser, place) as page:
                page.click("#bad button")
                expect(page.locator("#panel h3")).to_contain_text("onerror")
                assert "stolen" not in page.title()
                assert page.locator("img").count() == 0


def test_growing_run_is_shown_as_it_grows(browser: Browser, tmp_path: Path) -> None:
    run = tmp_path / "run"
    workload = "models=1,ops=6,flow=on,tensor_bytes=1024-2048,rate=100000"
    job = dumpstream("simulate", "--workload", workload, "--steps", 400)
    with subprocess.Popen(
        dumpstream("capture", "--out", run, "--quiet", "--", *job),
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
    ) as capturing:
        wait_for_file(run, capturing)
        with viewed(run) as address, opened(browser, address) as page:
            expect(page.locator("#state")).to_have_text("running")
            first = page.locator("#totals").inner_text()
            expect(page.locator("#totals")).not_to_have_text(first, timeout=LIMIT_MS)
            capturing.terminate()
            capturing.wait(LIMIT_S)
            expect(page.locator("#state")).not_to_have_text("running", timeout=LIMIT_MS)


def test_server_that_is_gone_is_said_on_the_page(browser: Browser, story: Path) -> None:
    context = browser.new_context()
    page = context.new_page()
    with viewed(story) as address:
        page.goto(address)
        page.wait_for_selector("body[data-ready]", timeout=LIMIT_MS)
    expect(page.locator("#notice")).to_contain_text("does not answer", timeout=LIMIT_MS)
    context.close()


def test_two_pages_at_once_do_not_affect_each_other(browser: Browser, story: Path, address: str) -> None:
    with viewed(story) as second, opened(browser, address) as one, opened(browser, second) as other:
        for page in (one, other):
            page.click("#bad button")
            expect(page.locator("#panel .command")).to_be_visible()


def test_page_keeps_all_rows_of_the_run(browser: Browser, story: Path, address: str) -> None:
    counted = subprocess.run(
        dumpstream("stats", story, "--format", "json", "--select", "nan"), capture_output=True, check=True
    )

    with opened(browser, address) as page:
        expect(page.locator("#totals")).to_contain_text(f"{len(json.loads(counted.stdout)):,} tensors")
