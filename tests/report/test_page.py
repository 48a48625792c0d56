"""The page in a real browser: its numbers are those on disk, its player and filters work, and everyone can read it."""

from __future__ import annotations

import json
import re
import shutil
from pathlib import Path

import numpy as np
import pytest

from leplanner.artifacts import read_lines
from leplanner.evaluation.videos import load_video
from leplanner.report.page import write_page
from leplanner.zoo import shipped

AXE = Path(__file__).parents[2] / "build" / "axe" / "package" / "axe.min.js"
TRIALS, VIDEOS, METHODS = 6, 2, 3  # of `evaluated`
COLORS = """canvas => { const d = canvas.getContext('2d').getImageData(0, 0, canvas.width, canvas.height).data;
  const s = new Set(); for (let i = 0; i < d.length; i += 4) s.add(d.slice(i, i + 4).join()); return s.size; }"""


@pytest.fixture(scope="module")
def page_file(evaluated, tmp_path_factory):
    """An evaluation with videos and few trials, and a shipped one with many trials and a search."""
    base = tmp_path_factory.mktemp("page")
    for source, name in (("evaluation.json", "summary.json"), ("manifest.json", "manifest.json")):
        shutil.copyfile(shipped()["reacher"] / source, base / name)
    return write_page([evaluated, base], base / "report.html", "A title <b>")


@pytest.fixture
def opened(browser, page_file):
    """A page, and what its console said or it asked the network for."""
    page, said = browser.new_page(viewport={"width": 1100, "height": 800}), []
    page.on("console", lambda message: said.append(message.text))
    page.on("pageerror", lambda error: said.append(str(error)))
    page.on("request", lambda request: said.append(request.url) if request.url.startswith("http") else None)
    page.goto(page_file.as_uri())
    page.locator("#p1 .tile").nth(METHODS).wait_for()
    yield page
    assert said == []
    page.close()


def wait_for(page, part: str, value) -> None:
    """Without `wait_for_function`, whose polling the page's content security policy forbids, as it should."""
    from playwright.sync_api import expect

    expect(page.locator(f"#p1 [data-part={part}]")).to_have_value(value, timeout=30_000)


def time(page) -> int:
    return int(page.locator("#p1 [data-part=time]").input_value())


def test_it_starts_with_one_sentence(opened, evaluated):
    assert opened.title() == opened.locator(".eyebrow").inner_text() == "A title <b>"
    reached = sum(row["outcome"]["any"] for row in read_lines(evaluated / "rows.jsonl") if row["method"] == "leplanner")
    sentence = opened.locator("h1").inner_text()
    assert sentence.startswith(f"On 2 tasks, LePlanner reached {200 + reached} of 206 goals")
    lead = opened.locator(".lead").inner_text()
    assert "On Reacher, CEM, with 1,800 times the compute per decision, reached 42 of 50 (84 %)" in lead


def test_the_numbers_on_the_page_are_those_of_the_rows(opened, evaluated):
    rows = read_lines(evaluated / "rows.jsonl")
    heads = opened.locator("#s1 table").first.locator("thead th").all_inner_texts()
    for name, title in (("leplanner", "LePlanner"), ("replay", "replay of the data"), ("no-op", "no-op")):
        mine = [row for row in rows if row["method"] == name]
        line = opened.locator("#s1 table").first.locator("tbody tr").filter(has=opened.get_by_text(title, exact=True))
        cells = dict(zip(heads, line.locator("td").all_inner_texts(), strict=True))
        assert cells["trials"] == str(TRIALS)
        for head, metric in (("any time", "any"), ("final", "final"), ("held 5 steps", "held")):
            assert cells[head] == f"{sum(row['outcome'][metric] for row in mine)} of {TRIALS}"
        assert cells["plan, ms"] == f"{np.median([row['plan_ms'] for row in mine]):.1f}"
    ours = [row for row in rows if row["method"] == "leplanner"]
    card = opened.locator(".card").first
    reached = sum(row["outcome"]["any"] for row in ours)
    assert card.locator("td.ours").first.inner_text().strip() == f"{reached} of {TRIALS}"
    cost = sum(np.median([row[name] for row in ours]) for name in ("encode_ms", "plan_ms"))
    assert card.locator("td.ours").nth(2).inner_text() == f"{cost:.3g} ms"
    assert opened.locator(".card").nth(1).locator("tr.first td").nth(1).inner_text().strip() == "84 % (71-92)"


def test_no_column_is_empty(opened):
    empty = opened.evaluate("""() => [...document.querySelectorAll('section table')].flatMap(table =>
      [...table.tHead.rows[0].cells].map((head, i) => [head, [...table.tBodies[0].rows].map(row => row.cells[i])])
      .filter(([, cells]) => cells.every(cell => !cell.textContent)).map(([head]) => head.textContent))""")
    assert empty == []


def test_filters_choose_rows(opened, evaluated):
    rows = read_lines(evaluated / "rows.jsonl")
    missed = [row for row in rows if not row["outcome"]["any"]]
    assert missed
    shown = opened.locator("#rows tbody tr")
    assert shown.count() == len(rows)
    opened.select_option("#f-method", label="replay of the data, m = 1")
    assert shown.count() == TRIALS
    opened.select_option("#f-method", "")
    opened.click("#misses")
    assert shown.count() == len(missed)
    assert opened.locator("#count").inner_text() == f"{len(missed)} trials, 0 reached"
    opened.click("#misses")
    opened.select_option("#f-video", "1")
    assert shown.count() == VIDEOS * METHODS


def test_the_first_trial_plays_unasked_and_by_keyboard(opened, evaluated):
    """All methods show the same step, with the distances of their videos."""
    player = opened.locator("#p1")
    player.locator("[data-part=tiles]").scroll_into_view_if_needed()
    wait_for(opened, "time", re.compile(r"^([3-9]|\d\d)$"))
    player.focus()
    opened.keyboard.press("Space")
    stopped = time(opened)
    opened.wait_for_timeout(400)
    assert time(opened) == stopped
    opened.keyboard.press("Home")  # is not taken
    opened.keyboard.press("ArrowLeft")
    opened.keyboard.press("ArrowLeft")
    assert time(opened) == stopped - 2
    step = 2 * (stopped - 2)
    assert player.locator("[data-part=step]").inner_text() == f"step {step} of 50"
    for place, name in enumerate(("leplanner", "replay", "no-op"), start=1):
        video = load_video(next((evaluated / "videos").glob(f"{name}-m1-0000-*")))
        tile = player.locator(".tile").nth(place)  # after the goal
        assert tile.locator("p span").nth(1).inner_text() == f"{float(f'{video.error[step]:.3g}'):g} px away"
        assert tile.locator(".badge").inner_text() == ("reached" if video.reached[step] else "not there")
        assert tile.locator("canvas").evaluate(COLORS) >= 3
    assert player.locator("[data-part=curve] polyline").count() == 4
    assert player.locator("[data-part=errors] polyline").count() == METHODS
    legend = player.locator(".legend li").all_inner_texts()
    assert legend == ["k = 0, the draft", "k = 1", "k = 2", "k = 3, the plan it proposes"]
    assert player.locator("[data-part=imagined]").evaluate(COLORS) >= 5
    opened.keyboard.press("Shift+ArrowRight")
    wait_for(opened, "trial", "1")
    assert time(opened) == 0
    assert player.locator("[data-part=next]").is_disabled()


def test_misses_are_one_click_away(browser, evaluated, tmp_path):
    """Of two recorded trials, ours reaches the first and misses the second."""
    folder = shutil.copytree(evaluated, tmp_path / "one-miss")
    rows = read_lines(evaluated / "rows.jsonl")
    for row in rows:
        row["outcome"]["any"] |= (row["method"], row["trial"]) == ("leplanner", 0)
    (folder / "rows.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    page = browser.new_page()
    page.goto(write_page([folder], tmp_path / "page.html").as_uri())
    options = page.locator("#p1 [data-part=trial] option")
    wait_for(page, "trial", "0")
    assert options.all_inner_texts() == ["trial 0", "trial 1"]
    page.get_by_role("button", name="misses of LePlanner: 1").click()
    wait_for(page, "trial", "1")
    assert options.all_inner_texts() == ["trial 1"]
    page.get_by_role("button", name="all trials: 2").click()
    wait_for(page, "trial", "0")
    page.close()


def test_the_list_opens_a_trial_in_the_player(opened):
    opened.get_by_role("button", name="Play trial 1").first.click()
    wait_for(opened, "trial", "1")
    assert opened.evaluate("document.activeElement.id") == "p1"


def test_nothing_moves_for_readers_who_prefer_less_motion(browser, page_file):
    page = browser.new_page(reduced_motion="reduce")
    page.goto(page_file.as_uri())
    page.locator("#p1 .tile").nth(METHODS).wait_for()
    page.locator("#p1 [data-part=tiles]").scroll_into_view_if_needed()
    page.wait_for_timeout(500)
    assert time(page) == 0
    assert page.locator("#p1 [data-part=play]").inner_text() == "Play"
    page.locator("#p1 [data-part=play]").click()
    wait_for(page, "time", re.compile(r"^([2-9]|\d\d)$"))
    page.close()


def test_it_fits_a_phone_and_paper(opened):
    opened.set_viewport_size({"width": 390, "height": 800})
    opened.evaluate("document.querySelectorAll('details').forEach(one => one.open = true)")
    assert opened.evaluate("document.documentElement.scrollWidth") <= 390
    opened.emulate_media(media="print")
    assert not opened.locator("nav").is_visible()
    assert not opened.locator("#p1 [data-part=play]").is_visible()
    assert opened.locator("#p1 .tile canvas").first.is_visible()


@pytest.mark.parametrize(("scheme", "width"), [("light", 1100), ("dark", 390)])
def test_axe_finds_no_serious_violation(opened, scheme, width):
    if not AXE.exists():
        pytest.skip("no axe-core here: sh scripts/axe.sh")
    opened.emulate_media(color_scheme=scheme)
    opened.set_viewport_size({"width": width, "height": 800})
    opened.evaluate("document.querySelectorAll('details').forEach(one => one.open = true)")
    opened.evaluate(AXE.read_text())
    found = opened.evaluate("axe.run()")
    assert len(found["passes"]) > 20
    serious = [one for one in found["violations"] if one["impact"] in ("serious", "critical")]
    assert [(one["id"], [node["html"][:200] for node in one["nodes"]][:3]) for one in serious] == []


def test_figures_take_the_pages_ink_and_ids_are_unique(page_file):
    text = page_file.read_text()
    ids = re.findall(r'\bid="([^"]+)"', text)
    assert len(ids) == len(set(ids))
    assert set(re.findall(r'(?:href="#|url\(#)([^")]+)', text)) <= set(ids)
    figures = re.findall(r"<svg aria-hidden.*?</svg>", text, re.S)
    assert figures
    assert all("currentColor" in figure and "#ffffff" not in figure for figure in figures)
