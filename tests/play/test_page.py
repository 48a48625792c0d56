"""The page in a real browser: a goal is set, the controller arrives, numbers update, a shove is answered."""

from __future__ import annotations

import importlib.util
import os
import re
import signal
import subprocess
import sys
from collections.abc import Iterator
from subprocess import PIPE, STDOUT

import pytest

from leplanner.cli.main import main
from leplanner.play.app import import_gradio

WAIT_MS = 120_000  # a busy machine is slow
needs_gradio = pytest.mark.skipif(importlib.util.find_spec("gradio") is None, reason="needs gradio: leplanner[play]")

VERB = [sys.executable, "-m", "leplanner", "play"]  # apart: gradio leaves sockets and event loops to the collector


@pytest.fixture
def address() -> Iterator[str]:
    """Of the page that `leplanner play tworoom` serves; Ctrl-C ends it without a complaint."""
    command = [*VERB, "tworoom", "--no-browser"]
    environment = {**os.environ, "PYTHONUNBUFFERED": "1"}
    with subprocess.Popen(command, env=environment, text=True, stdout=PIPE, stderr=STDOUT) as process:
        assert process.stdout is not None
        said = process.stdout.readline()
        found = re.search(r"play: (http://\S+)", said)
        try:
            assert found, said
            yield found.group(1)
        finally:
            process.send_signal(signal.SIGINT)
            try:
                rest = process.communicate(timeout=60)[0]
            except subprocess.TimeoutExpired:  # or leaving the block would wait for it for ever
                process.kill()
                raise
    assert process.returncode == 0
    assert rest == ""


def number(tab, name: str) -> float:
    return float(tab.locator(f"[data-number={name}]").first.inner_text().replace(",", ""))


@needs_gradio
def test_a_person_sets_a_goal_and_the_controller_arrives(browser, address):
    assert address.startswith("http://127.0.0.1:")
    complaints, hosts = [], set()
    tab = browser.new_page(viewport={"width": 1280, "height": 1000})
    tab.set_default_timeout(WAIT_MS)
    tab.on("console", lambda message: complaints.append(message.text) if message.type == "error" else None)
    tab.on("pageerror", lambda error: complaints.append(str(error)))
    tab.on("request", lambda r: None if r.url.startswith(("data:", "blob:")) else hosts.add(r.url.split("/")[2]))
    tab.goto(address)
    tab.wait_for_selector("img.scene")
    scene, goal = tab.locator("img.scene").first, tab.locator(".goal img")

    def click(x: float, y: float) -> None:
        box = scene.bounding_box()
        assert box is not None
        tab.mouse.click(box["x"] + x * box["width"], box["y"] + y * box["height"])

    click(0.5, 0.8)
    tab.wait_for_function("document.querySelector('.note').textContent.includes('wall is there')")
    shown = goal.get_attribute("src")
    click(0.25, 0.6)
    tab.wait_for_function("was => document.querySelector('.goal img').src !== was", arg=shown)
    shown = goal.get_attribute("src")
    click(0.75, 0.3)  # whatever the first scene was, one of the two is not reached yet
    tab.wait_for_function("was => document.querySelector('.goal img').src !== was", arg=shown)
    far = number(tab, "distance")
    assert number(tab, "step") == 0
    tab.locator("#go").click()
    tab.wait_for_selector("[data-status=held]")
    assert number(tab, "step") > 0
    assert number(tab, "distance") < max(far, 16.0)
    assert number(tab, "ms") > 0
    assert number(tab, "transitions") in (20, 25)
    step = number(tab, "step")
    tab.locator("#push").click()
    tab.wait_for_function("was => +document.querySelector('[data-number=step]').textContent > was + 8", arg=step)
    tab.wait_for_selector("[data-status=held]")
    tab.locator("#stop").click()
    tab.locator("#task label", has_text="Reacher").click()
    tab.wait_for_function("document.querySelector('.goal p').textContent.includes('fingertip')")
    assert number(tab, "step") == 0
    tab.close()
    assert complaints == []
    assert hosts == {address.split("/")[2]}  # nothing from elsewhere


def test_without_gradio_the_extra_is_named(monkeypatch):
    monkeypatch.setitem(sys.modules, "gradio", None)
    with pytest.raises(ImportError, match=r"pip install 'leplanner\[play\]'"):
        import_gradio()


def test_the_verb_explains_itself(capsys):
    with pytest.raises(SystemExit):
        main(["play", "--help"])
    shown = capsys.readouterr().out
    assert "--no-browser" in shown
    assert "127.0.0.1" in shown
