"""The page in a real browser: what it shows, what it asks for, and who can use it.

Set SECONDGUESS_SCREENSHOTS to a folder to keep pictures of it.
"""

from __future__ import annotations

import json
import os
import re
import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from playwright.sync_api import (
    Browser,
    ConsoleMessage,
    Error,
    Page,
    Request,
    Route,
    expect,
    sync_playwright,
)
from serving.live import running
from serving.stand_in import KnownEngine

from secondguess.language.checking import Verdict
from secondguess.language.findings import CheckFinding
from secondguess.language.marked import MarkedAnswers
from secondguess.serving.app import create_app
from secondguess.serving.config import Defaults, ServerConfig
from secondguess.theory.calibration.thresholds import GuaranteedThreshold

DESKTOP, PHONE = (1280, 900), (375, 740)
LOWEST_CONTRAST = 4.5
"""What WCAG 2.2 asks of text at level AA."""


@pytest.fixture(scope="module")
def browser() -> Iterator[Browser]:
    with sync_playwright() as playwright:
        try:
            browser = playwright.chromium.launch(
                executable_path=shutil.which("chromium") or shutil.which("google-chrome")
            )
        except Error as error:
            pytest.skip(f"there is no browser: {str(error).splitlines()[0]}")
        yield browser
        browser.close()


@pytest.fixture(scope="module")
def address() -> Iterator[str]:
    with running(create_app(KnownEngine(), ServerConfig(model_name="pairs"))) as address:
        yield address


@pytest.fixture
def page(browser: Browser, address: str) -> Iterator[Page]:
    yield from opened(browser, address)


def opened(browser: Browser, address: str, **options: Any) -> Iterator[Page]:
    """The page, which must neither call elsewhere nor complain on its console."""
    context = browser.new_context(**options)
    context.set_default_timeout(20_000)
    page = context.new_page()
    complaints: list[str] = []

    def hear(message: ConsoleMessage) -> None:
        if "status of 400" not in message.text:  # on the console whatever a page does about it
            complaints.append(message.text)

    def follow(request: Request) -> None:
        if not request.url.startswith(address):
            complaints.append(request.url)

    page.on("console", hear)
    page.on("pageerror", lambda error: complaints.append(str(error)))
    page.on("request", follow)
    page.goto(address)
    expect(page.get_by_text("pairs: a model")).to_be_visible()
    yield page
    context.close()
    assert complaints == []


def ask(page: Page, question: str) -> None:
    page.get_by_label("Question").fill(question)
    page.get_by_role("button", name="Ask").click()
    expect(page.get_by_role("table")).to_be_visible()


def move_slider(page: Page, rate: float) -> None:
    page.get_by_role("slider").fill(str(rate))


def test_an_answer_is_shown_with_its_bound(page: Page):
    ask(page, "known")
    result = page.get_by_role("status")
    expect(result).to_contain_text("and so on")
    expect(result).to_contain_text("at most 2.0%, if calibrated on pairs")


def test_a_refusal_says_what_it_would_have_said(page: Page):
    ask(page, "unknown")
    result = page.get_by_role("status")
    expect(result).to_contain_text("I don't know.")
    expect(result).to_contain_text(re.compile("would have said “.* and so on”"))
    expect(result).to_contain_text("0.337")  # its confidence


def test_the_slider_and_the_strategy_decide_again_without_asking_again(page: Page):
    asked: list[str] = []
    page.on("request", lambda request: asked.append(request.url))
    ask(page, "unknown")
    assert len(asked) == 1
    result = page.get_by_role("status")
    expect(result).to_contain_text("I don't know.")
    move_slider(page, 0.9)
    expect(result).to_contain_text("and so on")
    expect(result).to_contain_text("at most 66.3%")
    move_slider(page, 0.5)
    expect(result).to_contain_text("I don't know.")
    page.get_by_label("Strategy").select_option("selective")
    move_slider(page, 0.9)
    expect(result).to_contain_text("and so on")
    assert len(asked) == 1


def test_the_page_decides_as_the_server_does(page: Page, address: str):
    for strategy in ("selective", "rejection", "top1"):
        ask(page, "mixed")
        page.get_by_label("Strategy").select_option(strategy)
        for rate in (0.01, 0.3, 0.9):
            move_slider(page, rate)
            candidates = page.evaluate("answered.candidates")
            pool = candidates[:1] if strategy == "selective" else candidates
            good = [each["text"] for each in pool if each["gap"] <= rate]
            said = page.locator(".said").inner_text()
            assert said == (good[0] if good else "I don't know.")


def test_candidates_are_listed_with_their_meanings_and_counts(page: Page):
    ask(page, "mixed")
    rows = page.get_by_role("row")
    table = page.get_by_role("table")
    for head in ("answer", "times", "confidence", "bound"):
        expect(table.get_by_role("columnheader", name=head)).to_be_visible()
    times = [int(row.get_by_role("cell").nth(0).inner_text()) for row in rows.all()[1:]]
    assert sum(times) == 10


def test_meanings_and_guarantees_are_shown(browser: Browser):
    marked = MarkedAnswers(GuaranteedThreshold(-0.1234, 0.05, 0.01, 400, 200, 3.0), chosen_at=0.99)
    defaults = Defaults(max_hallucination_rate=0.1234)  # between two steps of the slider
    config = ServerConfig(
        model_name="pairs", defaults=defaults, meaning="(rome|oslo|lima)", marked=marked
    )
    with running(create_app(KnownEngine(), config)) as address:
        for page in opened(browser, address):
            ask(page, "known")
            result = page.get_by_role("status")
            expect(result).to_contain_text("at most 5.0% of its answers are wrong")
            expect(result).to_contain_text("for 1.0% of questions they may")
            heads = page.get_by_role("rowheader").all_inner_texts()
            assert all(text.split()[0] == text.split()[1] for text in heads)  # meaning, wording
            move_slider(page, 0.5)
            expect(result).not_to_contain_text("of its answers are wrong")
            move_slider(page, 0.12)
            expect(result).to_contain_text("at most 5.0% of its answers are wrong")
            ask(page, "unknown")
            expect(result).to_contain_text("so that at most 5.0% of its answers are wrong")


def test_the_slider_ends_where_the_noise_of_the_model_begins(browser: Browser):
    finding = CheckFinding(Verdict.NO_SIGN, 0.062, 500, {})
    config = ServerConfig(model_name="pairs", finding=finding)
    with running(create_app(KnownEngine(), config)) as address:
        for page in opened(browser, address):
            page.get_by_role("slider").press("Home")
            expect(page.get_by_role("slider")).to_have_value("0.07")
            ask(page, "known")
            expect(page.get_by_role("status")).to_contain_text("and so on")


def test_tokens_are_coloured_by_cheating(page: Page):
    ask(page, "unknown")
    move_slider(page, 0.9)
    tokens = page.locator(".said .token")
    assert tokens.count() == 4
    backgrounds = tokens.evaluate_all(
        "all => all.map(each => getComputedStyle(each).backgroundColor)"
    )
    assert backgrounds[0] != backgrounds[1] == backgrounds[2]
    assert "1.09 nats" in (tokens.nth(0).get_attribute("title") or "")


def test_it_is_used_by_keyboard_alone(page: Page):
    page.keyboard.type("known")  # the question has the focus
    page.keyboard.press("Tab")
    expect(page.get_by_role("slider")).to_be_focused()
    for _ in range(3):
        page.keyboard.press("ArrowRight")
    expect(page.get_by_label("Question")).to_have_value("known")
    expect(page.get_by_role("slider")).to_have_value("0.13")
    page.keyboard.press("Tab")
    page.keyboard.press("Tab")
    expect(page.get_by_role("button", name="Ask")).to_be_focused()
    page.keyboard.press("Enter")
    expect(page.get_by_role("status")).to_contain_text("and so on")
    outline = page.evaluate("getComputedStyle(document.activeElement).outlineStyle")
    assert outline == "solid"
    page.get_by_label("Question").fill("unknown")
    page.get_by_label("Question").press("Control+Enter")
    expect(page.get_by_role("status")).to_contain_text("I don't know.")


def test_a_screen_reader_finds_names_and_hears_results(page: Page):
    ask(page, "unknown")
    expect(page.get_by_role("slider")).to_have_accessible_name(re.compile("chance"))
    expect(page.get_by_role("slider")).to_have_attribute("aria-valuetext", "at most 10%")
    expect(page.get_by_role("region", name="Candidates")).to_be_visible()
    expect(page.get_by_role("status")).to_have_attribute("aria-live", "polite")
    unnamed = page.evaluate(
        """[...document.querySelectorAll("input, textarea, select, button")]
           .filter(each => !(each.labels?.length || each.textContent.trim())).length"""
    )
    assert unnamed == 0
    assert page.evaluate("document.documentElement.lang") == "en"
    levels = page.evaluate("[...document.querySelectorAll('h1, h2')].map(each => each.tagName)")
    assert levels[0] == "H1"
    assert levels.count("H1") == 1


def test_injection_through_questions_and_answers_is_text(page: Page):
    evil = "<img src=x onerror=alert(1)></script><script>alert(2)</script>"
    page.on("dialog", lambda dialog: pytest.fail(dialog.message))
    page.get_by_label("Question").fill(evil)
    page.get_by_role("button", name="Ask").click()
    expect(page.get_by_role("alert")).to_contain_text("<img")  # refused, in the words that came

    def poison(route: Route) -> None:
        answer = route.fetch()
        text = re.sub("rome|oslo|lima", lambda _: json.dumps(evil)[1:-1], answer.text())
        route.fulfill(response=answer, body=text)

    page.route("**/v1/chat/completions", poison)
    ask(page, "unknown")
    expect(page.get_by_role("status")).to_contain_text("<img")
    move_slider(page, 0.9)
    expect(page.get_by_role("status")).to_contain_text("<script>")
    assert page.locator("img, main script").count() == 0


def test_a_key_is_sent_and_errors_are_told(browser: Browser):
    config = ServerConfig(model_name="pairs", api_key="secret")
    with running(create_app(KnownEngine(), config)) as address:
        context = browser.new_context()
        page = context.new_page()
        page.goto(address)
        page.get_by_label("Question").fill("known")
        page.get_by_role("button", name="Ask").click()
        expect(page.get_by_role("alert")).to_contain_text("API key is missing")
        page.get_by_label("API key").fill("secret")
        page.get_by_role("button", name="Ask").click()
        expect(page.get_by_role("status")).to_contain_text("and so on")
        context.close()


CONTRASTS = (Path(__file__).parent / "contrast.js").read_text()


@pytest.mark.parametrize("theme", ["light", "dark"])
@pytest.mark.parametrize("size", [DESKTOP, PHONE], ids=["desktop", "phone"])
def test_both_themes_and_widths_are_legible(browser, address, theme, size):
    viewport = {"width": size[0], "height": size[1]}
    for page in opened(browser, address, color_scheme=theme, viewport=viewport):
        for question, rate in [("known", 0.1), ("mixed", 0.1), ("unknown", 0.1), ("unknown", 0.9)]:
            ask(page, question)
            move_slider(page, rate)
            contrasts = page.evaluate(CONTRASTS)
            assert len(contrasts) > 10
            too_faint = [each for each in contrasts if each[0] < LOWEST_CONTRAST]
            assert too_faint == []
            wide = page.evaluate("document.documentElement.scrollWidth - innerWidth")
            assert wide <= 0, "the page scrolls sideways"
            smallest = page.get_by_role("button", name="Ask").bounding_box()
            assert smallest is not None
            assert smallest["height"] >= 40  # of a finger
            if folder := os.environ.get("SECONDGUESS_SCREENSHOTS"):
                name = f"{theme}-{size[0]}-{question}-{rate}.png"
                page.screenshot(path=Path(folder, name), full_page=True)
