"""Method names to policies: everything in a comparison is made here, over one world, with one context."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import numpy as np

from ..baselines.learned import LEARNED, load_baseline
from ..baselines.simple import DoNothing, RandomPolicy, Replay
from ..control.policy import PlannerPolicy, Policy
from ..planner.actions import ActionBox
from ..planner.planner import TaskPlanner
from ..world.fast_rollout import FastRollout
from .manifest import Trial
from .properties import OURS, SEARCH

# these decide at their own pace, whatever m: every action (0), or every block (1); or look at nothing
OWN_PACE = {"gcidm": 0, "gcbc": 1, "gcivl": 1, "gciql": 1, "nothing": 1, "replay": 1}
METHODS = (*OURS, *SEARCH, *LEARNED, "random", "nothing", "replay")
PolicyFor = Callable[[Trial], Policy]


def check_methods(names: tuple[str, ...]) -> None:
    unknown = [name for name in names if name not in METHODS]
    if unknown or not names:
        raise ValueError(f"Unknown method {', '.join(unknown) or '(none given)'}; known: {', '.join(METHODS)}.")


def method_digest(name: str, planner: TaskPlanner, baselines: Path | None) -> str:
    """Of the weights a method decides with."""
    if name in LEARNED and baselines is not None:
        return load_baseline(baselines / name, planner.world).digest
    return planner.digest if name in OURS else planner.world.digest


def make_method(
    name: str,
    planner: TaskPlanner,
    baselines: Path | None,
    budget: int,
    samples: int = 300,
    rounds: int = 30,
    compiled: bool = False,  # searches imagine through a compiled rollout: the same within 1e-5, twice as fast
) -> PolicyFor:
    """A policy for each trial; only `replay` differs from one to the next."""
    check_methods((name,))
    box = ActionBox.of(planner.world.spec)
    if name == "replay":
        return lambda trial: Replay(np.array(trial.actions), budget)
    policy = _make_policy(name, planner, box, baselines, samples, rounds, compiled)
    return lambda trial: policy


def _make_policy(
    name: str, planner: TaskPlanner, box: ActionBox, baselines: Path | None, samples: int, rounds: int, compiled: bool
) -> Policy:
    if name in OURS:
        return PlannerPolicy(planner, keep=name == "leplanner-keep")
    if name == "random":
        return RandomPolicy(box)
    if name == "nothing":
        return DoNothing(box)
    if name in LEARNED:
        if baselines is None:
            raise ValueError(f"{name} needs trained baselines: leplanner baselines TASK, then --baselines DIR.")
        return load_baseline(baselines / name, planner.world)
    from ..baselines.swm_search import SearchBudget, SearchPolicy

    config = planner.model.config
    search = SearchBudget(samples=samples, rounds=rounds, elites=samples // 10, horizon=config.horizon)
    dynamics = FastRollout(planner.world.model, compiled=True) if compiled else planner.world
    return SearchPolicy(name, dynamics, box, config.context, search)
