"""The page: gradio components around a player for every visitor."""

from __future__ import annotations

import os
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np

from ..tasks import TASKS
from ..zoo import shipped
from .bundle import PlayBundle, open_bundle
from .player import Closed, Player, Visitors
from .session import OPPONENT_BUDGET, Session
from .view import stage_html

STEPS_A_SECOND = 20  # a controller is faster; people are not
STEPS_A_PICTURE = 2
LIMIT_STEPS = 400  # then a run ends by itself: a page may be left open
MOST_REFINEMENTS = 8
FOLDER = Path(__file__).parent
INTRODUCTION = (
    "<header><h1>leplanner play</h1><p>Set a goal by a click, press Go, and watch a planner get there through its "
    "world model, in the real simulator.</p></header>"
)


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


class PlayPage:
    """`blocks` is what gradio serves; `launch`, `wait` and `close` do so."""

    def __init__(
        self, first: str | Path | None = None, on_episode: Callable[[int, int], None] = lambda done, total: None
    ):
        """`first`: the task, bundle folder or Hugging Face id that the page opens with. `on_episode`: progress while
        a bundle's projection is fitted, which shipped bundles have."""
        self.gr = import_gradio()
        self.sources: dict[str, str | Path] = {TASKS[n].title: n for n in TASKS.names() if n in shipped()}
        titles = {name: title for title, name in self.sources.items()}
        self.first = next(iter(self.sources)) if first is None else titles.get(first, str(first))
        if first is not None:
            self.sources[self.first] = first
        self.on_episode = on_episode
        self.bundles: dict[str, PlayBundle] = {}
        self.opening = threading.Lock()
        self.visitors = Visitors()
        self._bundle(self.first)  # what is wrong with it is said in the terminal, before the page opens
        self.blocks = self._build()

    def _bundle(self, title: str) -> PlayBundle:
        """Opened when first played with, and kept."""
        with self.opening:
            if title not in self.bundles:
                self.bundles[title] = open_bundle(self.sources[title], self.on_episode)
            return self.bundles[title]

    def _build(self) -> Any:
        gr = self.gr
        with gr.Blocks(title="leplanner play", analytics_enabled=False) as page:
            player = gr.State(None)
            gr.HTML(INTRODUCTION)
            task = gr.Radio(list(self.sources), value=self.first, label="Task", elem_id="task")
            with gr.Row(elem_id="buttons", visible=False) as buttons:  # until there is a scene to act on
                start = gr.Button("Go", variant="primary", elem_id="go", min_width=120)
                shove = gr.Button("Push", elem_id="push", min_width=120)
                stop = gr.Button("Stop", elem_id="stop", min_width=120)
                scene = gr.Button("New scene", elem_id="scene", min_width=120)
            stage = gr.HTML("", js_on_load=(FOLDER / "click.js").read_text(), elem_id="stage")
            with gr.Row(elem_id="settings"):
                value = gr.Slider(0, 1, 0, label="", visible=False, elem_id="value")
                refinements = gr.Slider(0, MOST_REFINEMENTS, 3, step=1, label="K", elem_id="refinements")
                execute = gr.Slider(1, 5, 1, step=1, label="m, blocks executed before replanning", elem_id="execute")
                opponent = gr.Checkbox(False, label=f"CEM beside it ({OPPONENT_BUDGET})", elem_id="opponent")
            # gradio finds what else to pass by these, and it is imported late
            for handler, name, kind in ((self._open, "request", gr.Request), (_aim, "event", gr.EventData)):
                getattr(handler, "__func__", handler).__annotations__[name] = kind
            _leave = lambda request: self.visitors.leave(request.session_hash)  # noqa: E731
            _leave.__annotations__["request"] = gr.Request
            quiet: dict[str, Any] = {"show_progress": "hidden", "api_visibility": "private", "concurrency_limit": None}
            everything = [player, stage, value, refinements, execute, opponent, buttons]
            page.load(self._open, task, everything, **quiet)
            task.input(self._open, task, everything, **quiet)
            stage.click(_aim, [player, value], stage, **quiet)
            scene.click(_new_scene, player, stage, **quiet)
            shove.click(_push, player, stage, **quiet)
            stop.click(lambda player: player.running.clear(), player, None, **quiet)
            start.click(_go, [player, refinements, execute, opponent], stage, **quiet)
            page.unload(_leave)
        return page

    def _open(self, title: str, request: Any) -> tuple[Any, ...]:
        update, player = self.gr.update, Player(self._bundle(title))
        self.visitors.seat(request.session_hash, player)
        click, slider = player.bundle.task.goal_click, update(visible=False)
        if click is not None and (range_ := click.slider) is not None:
            bounds = {"minimum": range_.low, "maximum": range_.high, "value": range_.start}
            slider = update(visible=True, label=range_.label, **bounds)
        trained = player.bundle.trained_refinements
        return (
            player,
            player.call(stage_html),
            slider,
            update(value=trained, label=f"K, refinements of a plan (trained with {trained})"),
            update(value=1, maximum=player.bundle.planner.model.config.horizon),
            False,
            update(visible=True),
        )

    def launch(self, host: str = "127.0.0.1", port: int | None = None, browser: bool = True) -> str:
        """Serve in threads of its own; the address. No share link, and nothing is fetched from elsewhere: fonts are the
        machine's own."""
        fonts = {"font": ["system-ui", "sans-serif"], "font_mono": ["ui-monospace", "monospace"]}
        _, address, _ = self.blocks.launch(
            server_name=host,
            server_port=port,
            inbrowser=browser,
            share=False,
            quiet=True,
            prevent_thread_lock=True,
            footer_links=[],
            enable_monitoring=False,
            ssr_mode=False,
            theme=self.gr.themes.Default(**fonts),
            css=(FOLDER / "style.css").read_text(),
        )
        return address

    def wait(self) -> None:
        """Until Ctrl-C; then close."""
        try:
            while True:
                time.sleep(1.0)
        except KeyboardInterrupt:
            self.close()

    def close(self) -> None:
        self.blocks.close(verbose=False)
        self.visitors.close()


def _aim(player: Player, value: float, event: Any) -> str:
    """A click on the scene; what is wrong with the place is said below it."""
    player.running.clear()
    click = np.array([float(event.x), float(event.y)])

    def aim(session: Session) -> str:
        try:
            session.set_goal(click, value or 0.0)
        except ValueError as error:
            return stage_html(session, str(error))
        return stage_html(session)

    return player.call(aim)


def _new_scene(player: Player) -> str:
    player.running.clear()
    player.call(Session.new_scene)
    return player.call(stage_html)


def _push(player: Player) -> str:
    player.call(Session.push)
    return player.call(stage_html)


def _go(player: Player, refinements: int, execute: int, opponent: bool) -> Iterator[str]:
    """From where the scene was when the goal was set, at a pace that people can follow."""
    player.running.clear()
    player.call(lambda session: session.prepare(int(refinements), int(execute), opponent))
    player.running.set()
    for _ in range(LIMIT_STEPS // STEPS_A_PICTURE):
        began = time.perf_counter()
        if not player.running.is_set():
            return
        try:
            player.call(lambda session: session.step(STEPS_A_PICTURE))
            yield player.call(stage_html)
        except Closed:
            return
        time.sleep(max(0.0, STEPS_A_PICTURE / STEPS_A_SECOND - (time.perf_counter() - began)))
