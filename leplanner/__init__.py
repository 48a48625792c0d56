"""leplanner: plans through a frozen latent world model in milliseconds."""

from importlib import import_module
from importlib.metadata import PackageNotFoundError, version
from typing import TYPE_CHECKING, Any

try:
    __version__ = version("leplanner")
except PackageNotFoundError:  # run from a source tree that is not installed
    __version__ = "0+unknown"

if TYPE_CHECKING:
    from .data.cache import LatentCache, open_cache
    from .data.episodes import Episodes, open_episodes
    from .tasks import TASKS, Task, get_task
    from .world.world import World, load_world

_EXPORTS = {
    "Episodes": ".data.episodes",
    "LatentCache": ".data.cache",
    "TASKS": ".tasks",
    "Task": ".tasks",
    "World": ".world.world",
    "get_task": ".tasks",
    "load_world": ".world.world",
    "open_cache": ".data.cache",
    "open_episodes": ".data.episodes",
}
__all__ = ["TASKS", "Episodes", "LatentCache", "Task", "World", "get_task", "load_world", "open_cache", "open_episodes"]


def __getattr__(name: str) -> Any:
    """Submodules load on first use, so that `import leplanner` is quick."""
    if name not in _EXPORTS:
        raise AttributeError(f"module 'leplanner' has no attribute {name!r}")
    return getattr(import_module(_EXPORTS[name], __name__), name)
