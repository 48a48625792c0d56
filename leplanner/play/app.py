"""The page: gradio components around a player for every visitor."""

from __future__ import annotations

import os
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np

from ..tasks import get_task
from ..zoo import shipped
from .bundle import PlayBundle, open_bundle
from .player import Player
from .session import OPPONENT_BUDGET, Session
from .view import stage_html

STEPS_A_SECOND = 20  # a controller is faster; people are not
STEPS_A_PICTURE = 2
LIMIT_STEPS = 400  # then a run ends by itself: a page may be left open
MOST_REFINEMENTS = 8
FOLDER = Path(__file__).parent
CLICK = (FOLDER / "click.js").read_text()
STYLE = (FOLDER / "style.css").read_text()


def import_gradio() -> Any:
    os.environ.setdefault("GRADIO_ANALYTICS_ENABLED", "False")  # read when gradio is imported
    try:
        import gradio
    except ImportError as error:
        raise ImportError(
            f"leplanner play needs gradio, but it could not be imported ({error}). Install it with: "
            "pip install 'leplanner[play]'"
        ) from error
    return gradio


class Bundles:
    """Opened when first played with, and kept."""

    def __init__(self, sources: dict[str, str | Path], on_episode: Callable[[int, int], None]):
        self.sources, self.on_episode = sources, on_episode
        self.opened: dict[str, PlayBundle] = {}
        self.lock = threading.Lock()

    def get(self, name: str) -> PlayBundle:
        with self.lock:
            if name not in self.opened:
                self.opened[name] = open_bundle(self.sources[name], self.on_episode)
            return self.opened[name]


def build(first: str | Path | None = None, on_episode: Callable[[int, int], None] = lambda done, total: None) -> Any:
    """gradio Blocks; `first`: the task, bundle folder or Hugging Face id that the page opens with."""
    gr = import_gradio()
    sources: dict[str, str | Path] = {get_task(name).title: name for name in shipped()}
    chosen = next(iter(sources)) if first is None else next((t for t, n in sources.items() if n == first), str(first))
    if first is not None and chosen not in sources:
        sources[chosen] = first
    bundles = Bundles(sources, on_episode)
    bundles.get(chosen)  # what is wrong with it is said in the terminal, before the page opens

    def opened(name: str, old: Player | None) -> tuple[Any, ...]:
        if old is not None:
            old.close()
        player = Player(bundles.get(name))
        click = player.bundle.task.goal_click
        slider = click.slider if click else None
        shown = gr.update(visible=False)
        if slider is not None:
            shown = gr.update(
                visible=True, label=slider.label, minimum=slider.low, maximum=slider.high, value=slider.start
            )
        trained, horizon = player.bundle.trained_refinements, player.bundle.planner.model.config.horizon
        return (
            player,
            player.call(stage_html),
            shown,
            gr.update(value=trained, label=f"K, refinements of a plan (trained with {trained})"),
            gr.update(value=1, maximum=horizon),
            False,
        )

    def clicked(player: Player, value: float, event: Any) -> str:
        player.running.clear()
        x, y = float(event.x), float(event.y)

        def aim(session: Session) -> str:
            try:
                session.set_goal(np.array([x, y]), value or 0.0)
            except ValueError as error:
                return stage_html(session, str(error))
            return stage_html(session)

        return player.call(aim)

    clicked.__annotations__["event"] = gr.EventData  # gradio finds what to pass by this, and it is imported late

    def changed(player: Player, act: Callable[[Session], None]) -> str:
        player.running.clear()
        player.call(act)
        return player.call(stage_html)

    def go(player: Player, refinements: int, execute: int, opponent: bool) -> Iterator[str]:
        player.running.clear()
        player.call(lambda session: session.prepare(int(refinements), int(execute), opponent))
        player.running.set()
        for _ in range(LIMIT_STEPS // STEPS_A_PICTURE):
            began = time.perf_counter()
            if not player.running.is_set():
                return
            player.call(lambda session: session.step(STEPS_A_PICTURE))
            yield player.call(stage_html)
            time.sleep(max(0.0, STEPS_A_PICTURE / STEPS_A_SECOND - (time.perf_counter() - began)))

    def push(player: Player) -> str:
        player.call(Session.push)
        return player.call(stage_html)

    with gr.Blocks(title="leplanner play", analytics_enabled=False) as page:
        player = gr.State(None, time_to_live=3600, delete_callback=lambda old: old.close() if old else None)
        gr.HTML(
            "<header><h1>leplanner play</h1><p>Set a goal by a click, press Go, and watch a planner get there through "
            "its world model, in the real simulator.</p></header>"
        )
        task = gr.Radio(list(sources), value=chosen, label="Task", elem_id="task")
        stage = gr.HTML("", js_on_load=CLICK, elem_id="stage")
        with gr.Row(elem_id="buttons"):
            start = gr.Button("Go", variant="primary", elem_id="go")
            shove = gr.Button("Push", elem_id="push")
            stop = gr.Button("Stop", elem_id="stop")
            scene = gr.Button("New scene", elem_id="scene")
        with gr.Row(elem_id="settings"):
            value = gr.Slider(0, 1, 0, label="", visible=False, elem_id="value")
            refinements = gr.Slider(0, MOST_REFINEMENTS, 3, step=1, label="K, refinements", elem_id="refinements")
            execute = gr.Slider(1, 5, 1, step=1, label="m, blocks executed before replanning", elem_id="execute")
            opponent = gr.Checkbox(False, label=f"CEM beside it ({OPPONENT_BUDGET})", elem_id="opponent")
        quiet: dict[str, Any] = {"show_progress": "hidden", "api_visibility": "private"}
        everything = [player, stage, value, refinements, execute, opponent]
        page.load(opened, [task, player], everything, **quiet)
        task.input(opened, [task, player], everything, **quiet)
        stage.click(clicked, [player, value], stage, **quiet)
        scene.click(lambda p: changed(p, Session.new_scene), player, stage, **quiet)
        shove.click(push, player, stage, **quiet, concurrency_limit=None)
        stop.click(lambda p: p.running.clear(), player, None, **quiet, concurrency_limit=None)
        start.click(go, [player, refinements, execute, opponent], stage, **quiet, concurrency_limit=None)
    return page


def launch(page: Any, host: str = "127.0.0.1", port: int | None = None, browser: bool = True) -> str:
    """Serve a page that `build` made, in threads of its own; the address. No share link, and nothing is fetched from
    elsewhere: fonts are the machine's own."""
    gr = import_gradio()
    theme = gr.themes.Default(font=["system-ui", "sans-serif"], font_mono=["ui-monospace", "monospace"])
    _, address, _ = page.launch(
        server_name=host,
        server_port=port,
        inbrowser=browser,
        share=False,
        quiet=True,
        prevent_thread_lock=True,
        footer_links=[],
        enable_monitoring=False,
        ssr_mode=False,
        theme=theme,
        css=STYLE,
    )
    return address
