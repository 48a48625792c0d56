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
    from .control.loaded import load
    from .control.solver import Solver
    from .data.cache import LatentCache, open_cache
    from .data.episodes import Episodes, open_episodes
    from .density.mixture import Density, load_density
    from .planner.checks import check_dynamics, check_planner
    from .planner.planner import Planner
    from .planner.problem import LatentDynamics, Plan, PlanProblem, PlanTrace
    from .tasks import TASKS, Task, get_task
    from .tasks.swm_simulator import make_simulator
    from .world.world import World, load_world

_EXPORTS = {
    "Controller": ".control.controller",
    "DatasetRow": ".control.controller",
    "Density": ".density.mixture",
    "Episodes": ".data.episodes",
    "LatentCache": ".data.cache",
    "LatentDynamics": ".planner.problem",
    "Plan": ".planner.problem",
    "PlanProblem": ".planner.problem",
    "PlanTrace": ".planner.problem",
    "Planner": ".planner.planner",
    "Solver": ".control.solver",
    "TASKS": ".tasks",
    "Task": ".tasks",
    "World": ".world.world",
    "check_dynamics": ".planner.checks",
    "check_planner": ".planner.checks",
    "get_task": ".tasks",
    "load": ".control.loaded",
    "load_density": ".density.mixture",
    "load_world": ".world.world",
    "make_simulator": ".tasks.swm_simulator",
    "open_cache": ".data.cache",
    "open_episodes": ".data.episodes",
}
__all__ = [
    "TASKS",
    "Controller",
    "DatasetRow",
    "Density",
    "Episodes",
    "LatentCache",
    "LatentDynamics",
    "Plan",
    "PlanProblem",
    "PlanTrace",
    "Planner",
    "Solver",
    "Task",
    "World",
    "check_dynamics",
    "check_planner",
    "get_task",
    "load",
    "load_density",
    "load_world",
    "make_simulator",
    "open_cache",
    "open_episodes",
]


def __getattr__(name: str) -> Any:
    """Submodules load on first use, so that `import leplanner` is quick."""
    if name not in _EXPORTS:
        raise AttributeError(f"module 'leplanner' has no attribute {name!r}")
    return getattr(import_module(_EXPORTS[name], __name__), name)
