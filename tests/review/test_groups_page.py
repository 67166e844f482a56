"""Groups merged, split, moved and discarded on the page of `unida review`, in a real Chromium."""

import json
import re
import threading
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import pytest
from PIL import Image

from tests.report import made_up
from tests.report.made_up import make_run
from unida.discovery.categories import Categories, read_categories
from unida.discovery.discover import discover
from unida.discovery.tree import GroupTree, NearestClass, merge_order
from unida.report.build import write_report
from unida.review.continuation import read_reviewed_run
from unida.review.corrections import CorrectionStore, read_corrections, read_review_target
from unida.review.server import ReviewServer, open_server
from unida.training.run_folder import RunFolder

if TYPE_CHECKING:
    from playwright.sync_api import Browser, Page

SAVED = "() => document.getElementById('saved').textContent === 'saved'"


@pytest.fixture
def run(tmp_path: Path) -> RunFolder:
    """A run with 48 unknown images in a few categories."""
    run = make_run(tmp_path, unknown=48)
    discover(run).save(run)
    write_report(run)
    return run


@contextmanager
def served(run: RunFolder) -> Iterator[ReviewServer]:
    with open_server(CorrectionStore(read_review_target(run.path)), run.report) as server:
        thread = threading.Thread(target=server.serve_forever, args=(0.01,), daemon=True)
        thread.start()
        try:
            yield server
        finally:
            server.shutdown()
            thread.join()


@contextmanager
def opened(browser: "Browser", server: ReviewServer, **options: Any) -> "Iterator[Page]":
    """The page; at the end, nothing was logged."""
    with browser.new_context(viewport={"width": 1300, "height": 900}, **options) as context:
        context.set_default_timeout(120_000)
        page, trouble = context.new_page(), list[str]()
        page.on("console", lambda message: trouble.append(message.text))
        page.on("pageerror", lambda error: trouble.append(str(error)))
        page.goto(server.address)
        wait_for(page, "changes are saved to the run")
        yield page
        assert [line for line in trouble if "409" not in line] == []


@pytest.fixture
def page(browser: "Browser", run: RunFolder) -> "Iterator[Page]":
    with served(run) as server, opened(browser, server) as page:
        yield page


def wait_for(page: "Page", words: str) -> None:
    page.wait_for_function(
        "w => document.getElementById('saved').textContent.includes(w)", arg=words
    )


def after(page: "Page", act: Callable[[], object]) -> None:
    """Do something that is saved."""
    page.evaluate("() => { document.getElementById('saved').textContent = ''; }")
    act()
    page.wait_for_function(SAVED)


def sizes(run: RunFolder) -> Counter[str]:
    """Images of each group, as the next run reads them."""
    return Counter(image.label for image in read_reviewed_run(run.path).categorized)


def sizes_shown(page: "Page") -> dict[str, int]:
    found = page.locator(".group:not([data-group='0'])").evaluate_all(
        "all => all.map(n => [n.dataset.group, n.getAttribute('aria-label')])"
    )
    return {g: int(re.findall(r"(\d+) images?$", label)[0]) for g, label in found}


def card(page: "Page", group: str) -> Any:
    return page.locator(f".group[data-group='{group}']")


def test_a_card_says_what_was_found(page: "Page", run: RunFolder) -> None:
    words = card(page, "1").inner_text()
    assert "stability" in words
    assert "nearest known class" in words
    assert len(sizes_shown(page)) == len(json.loads(run.category_summary.read_text())["categories"])


def test_merge_undo_and_redo(page: "Page", run: RunFolder) -> None:
    before = sizes_shown(page)
    page.fill(".group input[data-id='2']", "zebra")
    card(page, "1").get_by_label("Select category 1").click()
    card(page, "2").get_by_label("Select category 2").click()
    after(page, lambda: page.click("#bar-merge"))
    merged = {k: n for k, n in before.items() if k != "1"} | {"2": before["1"] + before["2"]}
    assert sizes_shown(page) == sizes(run) == merged
    assert read_corrections(read_review_target(run.path))[0].names == {"2": "zebra"}
    after(page, lambda: page.click("#undo"))
    assert sizes_shown(page) == before == sizes(run)
    after(page, lambda: page.click("#redo"))
    assert sizes_shown(page) == merged == sizes(run)


def test_undo_after_a_reload_continues_where_it_was(page: "Page", run: RunFolder) -> None:
    before = sizes_shown(page)
    after(page, lambda: page.fill(".group input[data-id='2']", "zebra"))
    after(page, lambda: card(page, "1").get_by_text("Discard").click())
    page.reload()
    wait_for(page, "changes are saved to the run")
    assert "1" not in sizes_shown(page)
    after(page, lambda: page.click("#undo"))
    assert sizes_shown(page) == before
    after(page, lambda: page.click("#undo"))
    assert page.input_value(".group input[data-id='2']") == ""
    assert page.locator("#undo").is_disabled()
    assert not read_corrections(read_review_target(run.path))[0]


def test_everything_by_keyboard(page: "Page", run: RunFolder) -> None:
    before = sizes_shown(page)
    press = page.keyboard.press
    card(page, "1").focus()
    after(page, lambda: press("s"))
    halves = sizes_shown(page)
    (part,) = halves.keys() - before.keys()
    assert part.startswith("1.")
    assert halves["1"] + halves[part] == before["1"]
    assert halves["1"] >= halves[part]
    assert card(page, "1").evaluate("node => node === document.activeElement")
    assert card(page, "1").evaluate("node => node.nextSibling.dataset.group") == part
    after(page, lambda: press("u"))
    assert sizes_shown(page) == before
    after(page, lambda: press("Shift+U"))
    assert sizes_shown(page) == halves

    card(page, "2").focus()
    press("n")
    after(page, lambda: page.keyboard.type("horse"))
    press("Escape")
    after(page, lambda: press("d"))
    assert "2" not in sizes_shown(page)
    focused = "document.activeElement.closest('.group')?.dataset.group"
    assert page.evaluate(focused) not in (None, "2")

    card(page, "3").locator(".tile").first.focus()
    press("x")
    press("ArrowRight")
    press("x")
    assert page.locator("#bar-words").inner_text() == "2 images selected"
    press("v")
    assert page.evaluate("document.activeElement.id") == "move-to"
    after(page, lambda: page.select_option("#move-to", "1"))
    assert sizes_shown(page)["1"] == halves["1"] + 2
    card(page, "3").locator(".tile").first.focus()
    press("x")
    after(page, lambda: press("g"))
    (new,) = [group for group in sizes_shown(page) if group.startswith("new.")]
    card(page, new).focus()
    after(page, lambda: press("m"))
    assert new not in sizes_shown(page)
    assert sizes_shown(page) == sizes(run)


def test_a_merged_group_is_split_into_what_it_was(page: "Page") -> None:
    before = sizes_shown(page)
    card(page, "1").get_by_text("Merge with").click()
    merged = sizes_shown(page)
    (into,) = [group for group, n in merged.items() if n != before.get(group)]
    card(page, into).get_by_text("Split").click()
    assert sorted(sizes_shown(page).values()) == sorted(before.values())


def test_pictures_are_moved_by_mouse(page: "Page", run: RunFolder) -> None:
    before = sizes_shown(page)
    tiles = card(page, "1").locator(".tile")
    tiles.nth(0).click(modifiers=["Control"])
    tiles.nth(2).click(modifiers=["Shift"])
    assert page.locator("#bar-words").inner_text() == "3 images selected"
    assert tiles.nth(1).get_attribute("aria-pressed") == "true"
    after(page, lambda: tiles.nth(1).drag_to(card(page, "2").locator(".group-head")))
    assert sizes_shown(page)["2"] == before["2"] + 3
    card(page, "1").locator(".pick").drag_to(card(page, "3").locator(".group-head"))
    page.click("#picking")
    card(page, "2").locator(".tile").first.click()
    assert page.locator("#picture").is_hidden()
    after(page, lambda: page.click("#bar-discard"))
    assert sizes_shown(page) == sizes(run)
    assert sum(sizes(run).values()) == sum(before.values()) - 1


def test_a_discarded_group_is_restored(page: "Page", run: RunFolder) -> None:
    before = sizes_shown(page)
    after(page, lambda: card(page, "1").get_by_text("Discard").click())
    assert sizes(run) == {k: n for k, n in before.items() if k != "1"}
    after(page, lambda: card(page, "0").get_by_text("Restore").click())
    assert sizes_shown(page) == before


def test_two_reviewers_edit_different_groups(browser: "Browser", run: RunFolder) -> None:
    with served(run) as server, opened(browser, server) as one, opened(browser, server) as two:
        after(one, lambda: card(one, "1").get_by_text("Discard").click())
        after(two, lambda: card(two, "2").get_by_text("Discard").click())
        for page in (two,):
            assert not {"1", "2"} & sizes_shown(page).keys()
        assert sizes_shown(two) == sizes(run)


def test_contradicting_edits_are_shown(browser: "Browser", run: RunFolder) -> None:
    """One discards a group while the other names it."""
    with served(run) as server, opened(browser, server) as one, opened(browser, server) as two:
        after(one, lambda: card(one, "1").get_by_text("Discard").click())
        two.fill(".group input[data-id='1']", "zebra")
        wait_for(two, "the groups were edited there too")
        assert "1" not in sizes_shown(two)
        corrections = read_corrections(read_review_target(run.path))[0]
        assert (corrections.names, corrections.merges) == ({}, {"1": "0"})


def tiny_pictures(folder: Path, group: Any, rng: Any, pictures: bool) -> tuple[Path, ...]:
    folder.mkdir()
    paths = [folder / f"{i:05}.png" for i in range(len(group))]
    shades = [Image.new("RGB", (8, 8), f"hsl({int(g) * 37 % 360}, 60%, 60%)") for g in range(300)]
    for path, g in zip(paths, group, strict=True):
        shades[int(g)].save(path)
    return tuple(paths)


@pytest.fixture(scope="module")
def large(tmp_path_factory: pytest.TempPathFactory) -> RunFolder:
    """10,000 images, nearly all of them in 200 groups."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(made_up, "_draw", tiny_pictures)
        patch.setattr("unida.report.content.layout_2d", lambda x, seed: (x[:, :2], "plain"))
        folder = tmp_path_factory.mktemp("large")
        run = make_run(folder, per_class=50, unknown=9700, extras=True)
        paths = [image.path for image in read_categories(run.categories)]
        rng = np.random.default_rng(0)
        category = rng.integers(1, 201, len(paths))
        rows = [np.flatnonzero(category == k) for k in range(1, 201)]
        near = [NearestClass("apple", 0.9, k % 20 == 0) for k in range(200)]
        tree = GroupTree(
            merges=merge_order(rng.normal(size=(200, 4)).astype(np.float32)),
            splits=[f"{a}{b}" for a, b in rng.integers(0, 2, (len(paths), 2))],
            stability=rng.random(200).tolist(),
            known=list(near),
            odd=[some[:3].tolist() for some in rows],
        )
        shown = [[paths[i] for i in some[3:12]] for some in rows]
        sure = np.full(len(paths), 0.9)
        names = [None] * 200
        Categories(paths, category, sure, shown, list(names), 190, 210, "x", tree).save(run)
        write_report(run)
    return run


@pytest.mark.parametrize("theme", ["light", "dark"])
def test_10000_images_in_200_groups(
    browser: "Browser", large: RunFolder, theme: str, tmp_path: Path
) -> None:
    review = large.review
    review.unlink(missing_ok=True)
    with served(large) as server, opened(browser, server, color_scheme=theme) as page:
        assert len(sizes_shown(page)) == 200
        drawn = page.locator(".group .thumb").evaluate_all(
            "all => [all.length, all.filter(n => n.style.backgroundImage).length]"
        )
        assert drawn[0] < 4000  # of 9,700: the rest comes on demand
        assert drawn[1] < drawn[0] / 4  # only near pictures are painted
        spent = page.evaluate(
            """() => {
                const card = id => document.querySelector(`.group[data-group="${id}"]`);
                const press = (id, words) => [...card(id).querySelectorAll(".group-tools button")]
                    .find(b => b.textContent.startsWith(words)).click();
                const now = () => performance.now();
                const timed = act => { const t = now(); act(); return now() - t; };
                return [timed(() => press(1, "Split")), timed(() => press(2, "Merge")),
                    timed(() => press(3, "Discard")), timed(() => press(4, "Odd")),
                    timed(() => document.getElementById("bar-discard").click()),
                    timed(() => document.getElementById("undo").click()),
                    timed(() => { const s = document.getElementById("group-order");
                        s.value = "similar"; s.onchange(); })];
            }"""
        )
        print("ms: split, merge, discard, odd, discard images, undo, order:", spent)
        assert max(spent) < 4000
        page.wait_for_function(SAVED)
        assert sizes_shown(page) == sizes(large)
        page.locator(".group").nth(3).scroll_into_view_if_needed()
        card_of_four = card(page, "4")
        card_of_four.get_by_text("Odd ones").click()
        card_of_four.scroll_into_view_if_needed()
        page.wait_for_timeout(300)
        ground = page.evaluate("getComputedStyle(document.body).backgroundColor")
        assert (sum(map(int, re.findall(r"\d+", ground))) < 200) == (theme == "dark")
        page.screenshot(path=tmp_path / f"groups-{theme}.png")
