"""`leplanner play`: a local page to set goals on and watch a controller."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Annotated

from tyro.conf import Positional, arg

from ..play.app import PlayPage
from .options import MaybeInt
from .progress import bar, console


@dataclass(frozen=True)
class Play:
    """Open a local page: click where things should be and watch the controller go there, live.

    Needs gradio: pip install 'leplanner[play]'. Ctrl-C ends it.

    Example: leplanner play pusht
    """

    source: Annotated[str | None, Positional, arg(metavar="TASK", help_behavior_hint="")] = None
    """what to begin with: a shipped task, a bundle folder, or a Hugging Face id (default: the first task)"""
    host: str = "127.0.0.1"
    """where to listen; 127.0.0.1 is this machine alone"""
    port: MaybeInt = None
    """where to listen (default: the first free one from 7860)"""
    browser: bool = True
    """open the page in a browser"""

    def run(self) -> None:
        with bar("fitting where latents are in the picture", "episodes") as update:
            page = PlayPage(self.source, update)
        console.print(f"play: {page.launch(self.host, self.port, self.browser)} (Ctrl-C ends it)", soft_wrap=True)
        page.wait()
