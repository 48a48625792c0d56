"""leplanner: plans through a frozen latent world model in milliseconds."""

from importlib import import_module
from importlib.metadata import PackageNotFoundError, version
from typing import TYPE_CHECKING, Any

try:
    __version__ = version("leplanner")
except PackageNotFoundError:  # run from a source tree that is not installed
    __version__ = "0+unknown"

if TYPE_CHECKING:
    from .control.controller import Controller, DatasetRow
    from .control.loaded import LoadedPlanner, load
    from .control.methods import Method
    from .control.solver import Solver
    from .core.dynamics import Dynamics
    from .core.latent import LatentSpec
    from .core.problem import Plan, PlanProblem, PlanTrace
    from .data.cache import LatentCache, open_cache
    from .data.episodes import Episodes
    from .data.formats import open_episodes
    from .density.mixture import Density, load_density
    from .evaluation.metrics import Metric
    from .planner.checks import check_dynamics, check_planner
    from .planner.planner import Planner
    from .tasks import TASKS, Task, get_task, register_task
    from .worlds import World, WorldFamily, load_world, register_world

_EXPORTS = {
    "Controller": ".control.controller",
    "DatasetRow": ".control.controller",
    "Density": ".density.mixture",
    "Dynamics": ".core.dynamics",
    "Episodes": ".data.episodes",
    "LatentCache": ".data.cache",
    "LatentSpec": ".core.latent",
    "LoadedPlanner": ".control.loaded",
    "Method": ".control.methods",
    "Metric": ".evaluation.metrics",
    "Plan": ".core.problem",
    "PlanProblem": ".core.problem",
    "PlanTrace": ".core.problem",
    "Planner": ".planner.planner",
    "Solver": ".control.solver",
    "TASKS": ".tasks",
    "Task": ".tasks",
    "World": ".worlds",
    "WorldFamily": ".worlds",
    "check_dynamics": ".planner.checks",
    "check_planner": ".planner.checks",
    "get_task": ".tasks",
    "load": ".control.loaded",
    "load_density": ".density.mixture",
    "load_world": ".worlds",
    "open_cache": ".data.cache",
    "open_episodes": ".data.formats",
    "register_task": ".tasks",
    "register_world": ".worlds",
}
__all__ = [
    "TASKS",
    "Controller",
    "DatasetRow",
    "Density",
    "Dynamics",
    "Episodes",
    "LatentCache",
    "LatentSpec",
    "LoadedPlanner",
    "Method",
    "Metric",
    "Plan",
    "PlanProblem",
    "PlanTrace",
    "Planner",
    "Solver",
    "Task",
    "World",
    "WorldFamily",
    "check_dynamics",
    "check_planner",
    "get_task",
    "load",
    "load_density",
    "load_world",
    "open_cache",
    "open_episodes",
    "register_task",
    "register_world",
]


def __getattr__(name: str) -> Any:
    """Submodules load on first use, so that `import leplanner` is quick."""
    if name not in _EXPORTS:
        raise AttributeError(f"module 'leplanner' has no attribute {name!r}")
    return getattr(import_module(_EXPORTS[name], __name__), name)
