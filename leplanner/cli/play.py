"""`leplanner play`: a local page to set goals on and watch a controller."""

from __future__ import annotations

from typing import Annotated

from tyro.conf import Positional, arg

from ..play.app import PlayPage
from .options import MaybeInt
from .progress import bar, console


def play(
    source: Annotated[str | None, Positional, arg(metavar="TASK", help_behavior_hint="")] = None,
    host: str = "127.0.0.1",
    port: MaybeInt = None,
    browser: bool = True,
) -> None:
    """Open a local page: click where things should be and watch the controller go there, live.

    Needs gradio: pip install 'leplanner[play]'. Ctrl-C ends it.

    Example: leplanner play pusht

    Args:
        source: what to begin with: a shipped task, a bundle folder, or a Hugging Face id (default: the first task).
        host: where to listen; 127.0.0.1 is this machine alone.
        port: where to listen (default: the first free one from 7860).
        browser: open the page in a browser.
    """
    with bar("fitting where latents are in the picture", "episodes") as update:
        page = PlayPage(source, update)
    console.print(f"play: {page.launch(host, port, browser)} (Ctrl-C ends it)", soft_wrap=True)
    page.wait()
