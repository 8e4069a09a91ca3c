"""The page in a real browser: Debian's Chromium, headless, driven by Playwright.

The page is made twice: from results made up here, with everything that a page can show, and from
the committed results of a real quick run, where there are some.
"""

from __future__ import annotations

import os
import shutil
from collections.abc import Callable, Iterator
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest
from playwright.sync_api import Browser, Dialog, Page, expect, sync_playwright
from report.run_folders import write_run

from secondguess.report.page import write_report

COMMITTED = Path(__file__).parents[2] / "docs" / "results" / "quick"
SOURCES = ["made-up", *(["committed"] if COMMITTED.is_dir() else [])]
CHROMIUM = shutil.which("chromium") or shutil.which("chromium-browser")
PATIENCE = 120_000
"""Milliseconds until a step counts as stuck; on an idle machine none takes one hundredth of it."""

pytestmark = pytest.mark.skipif(
    CHROMIUM is None, reason="no Chromium here; on Debian: apt-get install chromium"
)

CONTRASTS = """() => {
  const canvas = document.createElement("canvas").getContext("2d", {willReadFrequently: true});
  const rgba = (colour) => {
    canvas.clearRect(0, 0, 1, 1);
    canvas.fillStyle = colour;
    canvas.fillRect(0, 0, 1, 1);
    return [...canvas.getImageData(0, 0, 1, 1).data];
  };
  const luminance = ([r, g, b]) => {
    const [x, y, z] = [r, g, b].map((v) => {
      v /= 255;
      return v <= 0.03928 ? v / 12.92 : ((v + 0.055) / 1.055) ** 2.4;
    });
    return 0.2126 * x + 0.7152 * y + 0.0722 * z;
  };
  const ground = (element) => {
    for (; element; element = element.parentElement) {
      const colour = rgba(getComputedStyle(element).backgroundColor);
      if (colour[3] === 255) return colour;
    }
    return [255, 255, 255, 255];
  };
  const low = [];
  for (const element of document.querySelectorAll("body *:not(script):not(svg *)")) {
    const hasText = [...element.childNodes].some((n) => n.nodeType === 3 && n.textContent.trim());
    if (!hasText || !element.checkVisibility()) continue;
    const [a, b] = [rgba(getComputedStyle(element).color), ground(element)].map(luminance);
    const ratio = (Math.max(a, b) + 0.05) / (Math.min(a, b) + 0.05);
    if (ratio < 4.5) low.push([element.className, element.textContent.slice(0, 30), ratio]);
  }
  return low;
}"""


@pytest.fixture(scope="module")
def browser() -> Iterator[Browser]:
    # Chromium's sandbox refuses to run as root, as it would have to in a container.
    arguments = ["--no-sandbox"] if os.geteuid() == 0 else []
    with sync_playwright() as playwright:
        running = playwright.chromium.launch(
            executable_path=CHROMIUM, args=arguments, timeout=PATIENCE
        )
        yield running
        running.close()


@pytest.fixture(scope="module", params=SOURCES)
def report(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp(request.param)
    if request.param == "committed":
        return write_report(COMMITTED, folder / "report.html")
    write_run(folder, "coins")
    write_run(folder, "coins", seed=1)
    write_run(folder, "dice", seed=1, text="a_very_long_name_" * 12)
    return write_report(folder)


Opened = Callable[..., Page]


@pytest.fixture
def opened(browser: Browser) -> Iterator[Opened]:
    """Opens a page; at the end, nothing must have gone wrong in it."""
    contexts, wrong = [], []

    def dismiss(dialog: Dialog) -> None:
        wrong.append(dialog.message)
        dialog.dismiss()

    def open_page(path: Path, **options: Any) -> Page:
        context = browser.new_context(reduced_motion="reduce", **options)
        contexts.append(context)
        context.set_default_timeout(PATIENCE)
        page = context.new_page()
        page.on("console", lambda message: wrong.append(message.text))
        page.on("pageerror", lambda error: wrong.append(str(error)))
        page.on("dialog", dismiss)
        page.on("requestfailed", lambda failed: wrong.append(f"not loaded: {failed.url[:80]}"))
        page.on(
            "request",
            lambda sent: (
                None if sent.url.startswith(("file:", "data:")) else wrong.append(sent.url[:80])
            ),
        )
        page.goto(path.as_uri())
        return page

    expect.set_options(timeout=PATIENCE)
    yield open_page
    for context in contexts:
        context.close()
    assert wrong == []


@pytest.mark.parametrize("scheme", ["light", "dark"])
@pytest.mark.parametrize("width", [390, 1400])
def test_the_layout_holds(report: Path, opened: Opened, width: int, scheme: str) -> None:
    page = opened(report, viewport={"width": width, "height": 900}, color_scheme=scheme)
    page.evaluate("document.querySelectorAll('details').forEach((each) => { each.open = true; })")
    # What is wider than the window scrolls inside a box of its own.
    outside = """() => [...document.querySelectorAll("main *")].filter((each) =>
      each.checkVisibility() && !each.closest(".scroll") &&
      each.getBoundingClientRect().right > innerWidth + 1)
      .map((each) => each.outerHTML.slice(0, 80))"""
    assert page.evaluate(outside) == []
    assert page.evaluate("document.documentElement.scrollWidth") <= width
    widths = page.evaluate("[...document.images].map((each) => each.naturalWidth)")
    assert widths
    assert min(widths) > 0
    dark = page.evaluate("getComputedStyle(document.body).backgroundColor") != "rgb(250, 249, 246)"
    assert dark == (scheme == "dark")
    assert page.evaluate(CONTRASTS) == []


def test_pointing_at_a_word_shows_its_log_probabilities(report: Path, opened: Opened) -> None:
    page = opened(report)
    reading, word = page.locator("#reading"), page.locator(".word").first
    expect(reading).to_be_hidden()
    word.hover()
    expect(reading).to_be_visible()
    assert "log-probability −" in reading.inner_text() or "0.000" in reading.inner_text()
    assert reading.inner_text() == word.get_attribute("data-reading")
    box = reading.bounding_box()
    assert box is not None
    assert box["x"] >= 0
    page.mouse.move(1, 1)
    expect(reading).to_be_hidden()


def test_words_are_read_with_the_keyboard_alone(report: Path, opened: Opened) -> None:
    page = opened(report)
    reading = page.locator("#reading")
    words = page.locator(".words").first.locator(".word")
    words.first.focus()
    expect(reading).to_have_text(words.first.get_attribute("data-reading") or "")
    page.keyboard.press("ArrowRight")
    expect(words.nth(1)).to_be_focused()
    expect(reading).to_have_text(words.nth(1).get_attribute("data-reading") or "")
    page.keyboard.press("End")
    expect(words.last).to_be_focused()
    page.keyboard.press("Home")
    expect(words.first).to_be_focused()
    page.keyboard.press("Escape")
    expect(reading).to_be_hidden()
    # One tab stop per answer: the next one is in the next answer.
    page.keyboard.press("Tab")
    assert page.evaluate("document.activeElement.closest('.words')") is not None
    expect(page.locator(".words").nth(1).locator(".word").first).to_be_focused()


def test_a_touch_shows_log_probabilities(report: Path, opened: Opened) -> None:
    page = opened(report, viewport={"width": 390, "height": 800}, has_touch=True)
    word = page.locator(".word").nth(1)
    word.tap()
    expect(page.locator("#reading")).to_have_text(word.get_attribute("data-reading") or "")


def test_words_are_coloured_as_chosen(report: Path, opened: Opened) -> None:
    page = opened(report)
    group = page.locator(".answers").first
    colours = "(group) => [...group.querySelectorAll('.word')].map((each) => " + (
        "getComputedStyle(each).backgroundColor)"
    )
    by_cheating = group.evaluate(colours)
    group.get_by_label("initial guess").check()
    by_first = group.evaluate(colours)
    group.get_by_label("after self-cheating").check()
    by_after = group.evaluate(colours)
    assert by_cheating != by_first
    assert by_after != by_cheating
    group.get_by_label("amount of cheating").check()
    assert group.evaluate(colours) == by_cheating


def walks_of(view: Any) -> list[dict[str, Any]]:
    return view.evaluate(
        """(view) => [...view.querySelectorAll(".walk")].map((walk) => ({
          gap: Number(walk.dataset.gap),
          flagged: walk.dataset.flagged === "1",
          solid: getComputedStyle(walk).strokeDasharray === "none",
          shown: getComputedStyle(walk).visibility === "visible",
        }))"""
    )


def test_walks_are_filtered_by_confidence(report: Path, opened: Opened) -> None:
    page = opened(report)
    group = page.locator(".walks").first
    slider = group.get_by_role("slider")
    for keys in ([], ["End"], ["ArrowLeft"] * 3, ["Home"], ["ArrowRight"] * 4):
        for key in keys:
            slider.press(key)
        limit = float(slider.input_value())
        expect(group.locator("output")).to_have_text(f"{limit:.2f}")
        for view in group.locator(".view").all():
            walks = walks_of(view)
            assert walks
            accepted = [walk for walk in walks if walk["gap"] <= limit]
            assert [walk["solid"] for walk in walks] == [walk["gap"] <= limit for walk in walks]
            counts = view.locator("b").all_inner_texts()
            assert counts == [str(len(accepted)), str(sum(walk["flagged"] for walk in accepted))]
    assert limit == 0.04
    group.get_by_label("hide rejected walks").check()
    for view in group.locator(".view").all():
        assert all(walk["shown"] == walk["solid"] for walk in walks_of(view))


def test_one_view_can_be_looked_at_alone(report: Path, opened: Opened) -> None:
    page = opened(report)
    group = page.locator(".walks").first
    views = group.locator(".view")
    assert views.count() > 1
    group.get_by_label("Show").select_option(index=2)
    expect(views.nth(1)).to_be_visible()
    expect(views.nth(0)).to_be_hidden()
    group.get_by_label("Show").select_option(index=0)
    expect(views.nth(0)).to_be_visible()


def test_the_navigation_can_be_skipped(report: Path, opened: Opened) -> None:
    page = opened(report)
    page.keyboard.press("Tab")
    skip = page.get_by_text("Skip to the results")
    expect(skip).to_be_focused()
    expect(skip).to_be_in_viewport()
    page.keyboard.press("Enter")
    expect(page.locator("main")).to_be_focused()


def test_headings_are_nested_and_everything_has_a_name(report: Path, opened: Opened) -> None:
    page = opened(report)
    levels = page.evaluate(
        "[...document.querySelectorAll('h1,h2,h3,h4,h5')].map((each) => Number(each.tagName[1]))"
    )
    assert levels.count(1) == 1
    assert all(below <= above + 1 for above, below in pairwise(levels))
    for role in ("slider", "combobox", "checkbox", "radio", "img", "region"):
        for element in page.get_by_role(role).all()[:20]:  # pyright: ignore[reportArgumentType]
            named = "(each) => each.getAttribute('aria-label') || each.alt || each.labels?.length"
            assert element.evaluate(named), element


def test_without_scripts_everything_is_shown(report: Path, opened: Opened) -> None:
    page = opened(report, java_script_enabled=False)
    expect(page.locator(".controls").first).to_be_hidden()
    expect(page.locator(".view svg").first).to_be_visible()
    expect(page.locator(".picture img").first).to_be_visible()
    expect(page.locator(".verdicts").first).to_be_visible()


def test_hostile_results_run_nothing(tmp_path: Path, opened: Opened) -> None:
    hostile = (
        "\"'></script></style><script>alert(1)</script>"
        "<img src=x onerror=alert(2)><svg/onload=alert(3)>"
    )
    write_run(tmp_path, text=hostile)
    page = opened(write_report(tmp_path))
    expect(page.locator("h2").first).to_have_text(hostile)
    page.locator(".word").first.hover()
    expect(page.locator("#reading")).to_be_visible()
    assert page.locator("script").count() == 1
    assert page.locator("img").count() == 1


@pytest.mark.slow
def test_fresh_runs_make_a_page(
    tmp_path: Path, opened: Opened, monkeypatch: pytest.MonkeyPatch
) -> None:
    from secondguess.experiments.digits_of_pi import run as digits_of_pi
    from secondguess.experiments.frozen_lake import run as frozen_lake
    from secondguess.experiments.regression import run as regression

    tiny: dict[str, Any] = {
        "hidden_size": 16,
        "num_layers": 1,
        "num_heads": 2,
        "batch_size": 8,
        "num_steps": 4,
    }
    tiny |= {"layout": "positions", "warmup_steps": 1}
    lake: dict[str, Any] = tiny | {"track_every": 2, "num_held_out": 20, "num_samples": 40}
    monkeypatch.setitem(frozen_lake.PRESETS, "quick", frozen_lake.LakeConfig(**lake))
    pi: dict[str, Any] = tiny | {"num_offsets": 24, "num_samples": 10}
    monkeypatch.setitem(digits_of_pi.PRESETS, "quick", digits_of_pi.PiConfig(**pi))
    small = regression.Preset(num_steps=4, num_members=2, num_inducing=8, largest_stream=1000)
    monkeypatch.setitem(regression.PRESETS, "quick", small)
    frozen_lake.run_frozen_lake(preset="quick", out=tmp_path)
    digits_of_pi.run_digits_of_pi(preset="quick", out=tmp_path)
    regression.run_regression(preset="quick", out=tmp_path, extras=())
    page = opened(write_report(tmp_path))
    titles = ["One-dimensional regression", "Digits of pi", "Frozen Lake"]
    assert page.locator("h2").all_inner_texts() == titles
    assert page.locator(".problem").count() == 0
    assert page.evaluate("[...document.images].every((each) => each.naturalWidth > 0)")
    assert page.locator("img").count() == 4 + 3 + 5
    lake_verdicts = page.locator("#frozen-lake li:not(.needs) .statement").all_inner_texts()
    assert len(lake_verdicts) == 8
    assert all(text.lower().startswith("exact predictor") for text in lake_verdicts)
