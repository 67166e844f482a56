"""The page in a real Chromium, opened from disk: what it shows and what it does."""

import csv
import os
import re
import shutil
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from tests.report.made_up import CLASSES, HOSTILE, make_run
from unida.report.build import write_report
from unida.review.budget import choose_images
from unida.review.corrections import CorrectionStore, read_review_target
from unida.review.server import open_server, up_to_date_report
from unida.training.run_folder import RunFolder

if TYPE_CHECKING:
    from playwright.sync_api import Browser, Download, Page

PER_CLASS, UNKNOWN = 8, 16
N = PER_CLASS * len(CLASSES) + UNKNOWN


@contextmanager
def opened(browser: "Browser", place: Path, **options: Any) -> "Iterator[Page]":
    """The page; at the end, nothing was logged, loaded or popped up."""
    context = browser.new_context(**options)
    context.set_default_timeout(120_000)  # the machine may be busy
    page = context.new_page()
    trouble: list[str] = []
    page.on("console", lambda logged: trouble.append(f"{logged.type}: {logged.text}"))
    page.on("pageerror", lambda error: trouble.append(str(error)))
    page.on("dialog", lambda dialog: (trouble.append(dialog.message), dialog.dismiss()))
    own = (place.as_uri(), "blob:", "data:")
    page.on("request", lambda r: None if r.url.startswith(own) else trouble.append(r.url))
    page.goto(place.as_uri())
    yield page
    assert trouble == []
    context.close()


@pytest.fixture
def page(browser: "Browser", report: Path) -> "Iterator[Page]":
    with opened(browser, report) as page:
        yield page


def point_at(page: "Page", image: int) -> None:
    page.locator("#canvas").scroll_into_view_if_needed()
    x, y = page.evaluate(f"unidaReport.where({image})")
    box = page.locator("#canvas").bounding_box()
    assert box is not None
    page.mouse.move(box["x"] + x, box["y"] + y)


def rows_of(download: "Download") -> list[dict[str, str]]:
    with open(download.path(), newline="") as file:
        return list(csv.DictReader(file))


def show_gallery(page: "Page") -> None:
    page.locator("#gallery").scroll_into_view_if_needed()
    page.locator(".tile").first.wait_for()


def test_every_section_is_there_and_describes_the_run(page: "Page") -> None:
    titles = page.locator("#nav a").all_inner_texts()
    assert titles == ["Summary", "Map", "Gallery", "Categories", "Training", "Confusion",
                      "Calibration", "Skipped", "Reproduce"]  # fmt: skip
    words = page.locator("#words").inner_text()
    assert f"applied to {N} target images" in words
    assert f"called {UNKNOWN} (25%) unknown" in words
    assert "Class cup has few images." in page.locator("#warnings").inner_text()
    assert page.locator("#curves figure").count() == 4
    assert page.locator("#command").inner_text().startswith("unida adapt --source ")


def test_pointing_at_a_mark_shows_its_picture(page: "Page") -> None:
    tip = page.locator("#tip")
    assert tip.is_hidden()
    point_at(page, 3)
    tip.wait_for()
    over = page.evaluate("unidaReport.over()")
    data = page.evaluate("JSON.parse(document.getElementById('data').textContent)")
    assert data["target"]["path"][over] in tip.inner_text()
    page.wait_for_function(  # a picture, not a grey square: more than ten values
        "() => { const c = document.querySelector('#tip canvas');"
        " return new Set(c.getContext('2d').getImageData(0, 0, c.width, c.height).data).size > 10 }"
    )
    page.mouse.move(0, 0)
    assert tip.is_hidden()


def test_a_class_is_isolated_by_click_and_by_key(page: "Page") -> None:
    first, second = (page.locator("#legend button").nth(k) for k in (0, 1))
    first.click()
    assert first.get_attribute("aria-pressed") == "true"
    shown = page.locator("#map-live").text_content()
    assert shown == f"{PER_CLASS + PER_CLASS // 2} images shown"
    second.focus()
    page.keyboard.press("Enter")
    assert [b.get_attribute("aria-pressed") for b in (first, second)] == ["false", "true"]
    page.uncheck("#show-source")
    assert page.locator("#map-live").text_content() == f"{PER_CLASS} images shown"
    page.click("#show-all")
    assert page.locator("#map-live").text_content() == f"{N} images shown"


def test_images_of_hidden_classes_cannot_be_pointed_at(page: "Page") -> None:
    page.locator("#legend button").nth(1).click()
    point_at(page, 0)  # of class 0
    labels = page.evaluate("JSON.parse(document.getElementById('data').textContent).target.label")
    over = page.evaluate("unidaReport.over()")
    assert over == -1 or over >= N or labels[over] == 1


def test_the_map_is_usable_by_keyboard(page: "Page") -> None:
    page.focus("#canvas")
    before = page.evaluate("unidaReport.where(5)")
    page.keyboard.press("+")
    page.keyboard.press("ArrowRight")
    page.wait_for_function("() => unidaReport.draws() > 1")
    assert page.evaluate("unidaReport.where(5)") != before
    page.keyboard.press("0")
    assert page.evaluate("unidaReport.where(5)") == before
    page.keyboard.press("n")
    assert HOSTILE in page.locator("#map-live").inner_text()  # the first image
    page.keyboard.press("Enter")
    assert page.locator("#picture-title").inner_text() == f"{HOSTILE}.png"
    facts = page.locator("#facts").inner_text()
    page.keyboard.press("ArrowRight")
    assert page.locator("#facts").inner_text() != facts
    page.keyboard.press("Escape")
    assert page.locator("#picture").is_hidden()


def test_dragging_and_scrolling_move_the_map(page: "Page") -> None:
    point_at(page, 7)
    moved = "([image, before]) => String(unidaReport.where(image)) !== String(before)"
    other = 0  # zooming leaves the image under the pointer where it is
    before = page.evaluate(f"unidaReport.where({other})")
    page.locator("#canvas").focus()
    page.mouse.wheel(0, -200)
    page.wait_for_function(moved, arg=[other, before])
    before = page.evaluate("unidaReport.where(7)")
    page.mouse.down()
    page.mouse.move(300, 300, steps=4)
    page.mouse.up()
    page.wait_for_function(moved, arg=[7, before])
    assert page.locator("#picture").is_hidden()  # a drag is not a click


def test_galleries_begin_with_the_most_doubtful(page: "Page") -> None:
    show_gallery(page)
    doubt = page.evaluate("JSON.parse(document.getElementById('data').textContent).target.doubt")

    def shown() -> list[int]:
        tiles = page.locator(".shelf").first.locator(".tile")
        tiles.first.wait_for()
        return [doubt[int(t.get_attribute("data-i") or 0)] for t in tiles.all()]

    assert len(shown()) > 3
    assert shown() == sorted(shown(), reverse=True)
    page.select_option("#order", "least")
    assert shown() == sorted(shown())


def test_nothing_moves_while_the_page_is_read(page: "Page") -> None:
    """A section that grew when it came near would slip from under the reader's hand."""
    tops = "[...document.querySelectorAll('section, .shelf, .group')].map(n => n.offsetTop)"
    before = page.evaluate(tops)
    assert len(before) > len(CLASSES)
    assert page.locator(".tile .thumb").last.evaluate("n => n.style.backgroundImage") == ""
    for place in page.locator("section:visible").all():
        place.scroll_into_view_if_needed()
    page.locator(".tile .thumb").last.scroll_into_view_if_needed()
    page.wait_for_function(
        "() => [...document.querySelectorAll('.thumb')].at(-1).style.backgroundImage"
    )
    assert page.evaluate(tops) == before


def test_galleries_are_walked_with_arrows(page: "Page") -> None:
    show_gallery(page)
    tiles = page.locator(".shelf").first.locator(".tile")
    tiles.first.focus()
    page.keyboard.press("ArrowRight")
    assert tiles.nth(1).evaluate("node => node === document.activeElement")
    page.keyboard.press("Enter")
    assert page.locator("#picture").is_visible()
    page.keyboard.press("Escape")
    assert tiles.nth(1).evaluate("node => node === document.activeElement")


def test_names_of_categories_survive_a_reload_and_are_exported(
    page: "Page", made_up: RunFolder
) -> None:
    name = 'zebra, "wild" <b>'
    page.fill('.group input[data-id="1"]', name)
    page.wait_for_function("() => document.getElementById('saved').textContent.includes('kept')")
    page.reload()
    assert page.input_value('.group input[data-id="1"]') == name
    assert page.locator("#named").inner_text() == "1 of 4 named"
    with page.expect_download() as waiting:
        page.click("#export-names")
    rows = rows_of(waiting.value)
    with open(made_up.path / "categories.csv", newline="") as file:
        found = {row["path"]: row["category"] for row in csv.DictReader(file)}
    assert {row["path"]: row["category"] for row in rows} == found
    named = {row["category"]: row["name"] for row in rows}
    assert named == {"1": name, "2": "<b>bold</b>", "3": "", "4": ""}


def test_a_label_is_corrected_and_exported(page: "Page", made_up: RunFolder) -> None:
    show_gallery(page)
    tile = page.locator(".shelf").first.locator(".tile").first
    path = page.evaluate(
        "i => { const d = JSON.parse(document.getElementById('data').textContent);"
        " return d.run.root + d.target.path[i]; }",
        int(tile.get_attribute("data-i") or 0),
    )
    tile.click()
    page.select_option("#label-select", label=CLASSES[2])
    page.keyboard.press("Escape")
    assert CLASSES[2] in (tile.get_attribute("aria-label") or "")
    tile.click()
    page.select_option("#label-select", value="new")
    page.fill("#label-new", "ze<i>bra")
    page.keyboard.press("Enter")
    page.locator("#picture .shut button").click()
    assert page.locator("#corrected").inner_text() == "1 label corrected"
    with page.expect_download() as waiting:
        page.click("#export-labels")
    assert rows_of(waiting.value) == [{"path": path, "label": "ze<i>bra"}]
    page.reload()
    assert page.locator("#corrected").inner_text() == "1 label corrected"


def test_review_shows_the_images_to_label_first(
    browser: "Browser", made_up: RunFolder, tmp_path: Path
) -> None:
    run = Path(shutil.copytree(made_up.path, tmp_path / "run"))
    store = CorrectionStore(read_review_target(run))
    first = choose_images(run, 5, on_page=True)
    with open_server(store, up_to_date_report(store.target.run), first=first) as server:
        threading.Thread(target=server.serve_forever, daemon=True).start()
        context = browser.new_context()
        context.set_default_timeout(120_000)
        page = context.new_page()
        page.goto(server.address)
        tiles = page.locator("#first .tile")
        tiles.nth(4).wait_for()
        assert tiles.count() == 5
        for path, tile in zip(first, tiles.all(), strict=True):
            assert os.path.basename(path) in (tile.get_attribute("title") or "")
        tiles.first.click()
        page.locator("#label-select").select_option(label="bicycle")
        page.get_by_text("saved", exact=True).wait_for()
        assert "→ bicycle" in tiles.first.inner_text()
        context.close()
        server.shutdown()
    assert store.read().labels == {first[0]: "bicycle"}


def test_hostile_names_are_shown_as_text(page: "Page") -> None:
    """No markup comes of them anywhere; `opened` checks that nothing ran or was loaded."""
    show_gallery(page)
    page.evaluate("window.scrollTo(0, document.body.scrollHeight)")
    page.select_option("#colour", "category")
    assert page.locator("img, main script, b:text-is('bold')").count() == 0
    assert page.locator("main").inner_text().count(HOSTILE) > 5
    assert CLASSES[2] in page.locator("#predictions").inner_text()
    assert f"{HOSTILE}.gif" in page.locator("#skipped-rows").inner_text()


def test_the_confusion_has_unknown_as_a_class(page: "Page") -> None:
    heads = page.locator("#matrix thead th").all_inner_texts()
    assert heads[1:] == [*CLASSES, "unknown"]
    assert page.locator("#matrix tbody tr").count() == len(CLASSES) + 1
    assert "76.0%" in page.locator("#marks").inner_text()


def test_the_theme_follows_the_system_and_the_button(browser: "Browser", report: Path) -> None:
    with opened(browser, report, color_scheme="dark") as page:

        def ground() -> str:
            return str(page.evaluate("getComputedStyle(document.body).backgroundColor"))

        dark = ground()
        page.click("#theme")
        assert ground() != dark
        light = ground()
        page.reload()
        assert ground() == light


def test_a_narrow_screen_needs_no_scrolling_sideways(browser: "Browser", report: Path) -> None:
    with opened(browser, report, viewport={"width": 360, "height": 700}) as page:
        page.evaluate("window.scrollTo(0, document.body.scrollHeight)")
        assert page.evaluate("document.documentElement.scrollWidth") == 360


def test_everything_that_can_be_pressed_has_a_name(page: "Page") -> None:
    show_gallery(page)
    nameless = page.evaluate(
        "[...document.querySelectorAll('button, select, input, a, canvas[tabindex]')].filter(n => "
        "!(n.textContent.trim() || n.ariaLabel || n.closest('label'))).map(n => n.outerHTML)"
    )
    assert nameless == []


def test_a_bare_run_has_no_empty_sections(browser: "Browser", tmp_path: Path) -> None:
    run = make_run(tmp_path, per_class=2, unknown=0, extras=False)
    run.features.unlink()
    run.metrics.unlink()
    run.write_skipped([])
    with opened(browser, write_report(run)) as page:
        assert page.locator("#nav a").all_inner_texts() == ["Summary", "Gallery", "Reproduce"]


def test_missing_images_are_grey_and_counted(browser: "Browser", tmp_path: Path) -> None:
    run = make_run(tmp_path, per_class=2, unknown=4)
    for image in (tmp_path / "target").iterdir():
        image.unlink()
    with opened(browser, write_report(run)) as page:
        assert re.search("16 of 22 images could not be read", page.inner_text("#warnings"))
        show_gallery(page)


def test_many_images_are_drawn_once_a_frame(
    browser: "Browser", tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """However many events come between two frames, and without a message on the console."""
    monkeypatch.setattr("unida.report.content.layout_2d", lambda x, seed: (x[:, :2], "plain"))
    classes = [f"class {k}" for k in range(45)]
    run = make_run(tmp_path, per_class=40, unknown=200, classes=classes, pictures=False)
    with opened(browser, write_report(run)) as page:
        page.wait_for_function("() => unidaReport.draws() > 0")
        shown = page.evaluate(
            """async () => {
                const canvas = document.getElementById("canvas"), counts = [];
                const box = canvas.getBoundingClientRect();
                const frame = () => new Promise(requestAnimationFrame);
                await frame(); await frame();
                for (let n = 0; n < 5; n++) {
                    const before = unidaReport.draws();
                    for (let m = 0; m < 20; m++) {
                        const place = { clientX: box.left + 40 * m, clientY: box.top + 30 * m + n };
                        canvas.dispatchEvent(new PointerEvent("pointermove", place));
                        document.getElementById("zoom-in").click();
                        document.getElementById("zoom-out").click();
                    }
                    await frame(); await frame();
                    counts.push(unidaReport.draws() - before);
                }
                return counts;
            }"""
        )
        assert shown == [1] * 5
        page.check("#show-pictures")
        show_gallery(page)
        assert page.locator("#legend button").count() == 46
