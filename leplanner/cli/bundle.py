"""A bundle to ship: weights, what they were measured to do and on which trials, a few easy trials, and the card."""

from __future__ import annotations

import shutil
from pathlib import Path

from ..artifacts import atomic_path, read_json
from ..data.episodes import Episodes
from ..evaluation.manifest import Manifest, draw_manifest, load_manifest, save_manifest
from ..evaluation.properties import OURS
from ..planner.planner import load_bundle
from ..report.card import Making, model_card
from ..tasks import get_task

EASY_TRIALS, EASY_SEED, EASY_OFFSET, EASY_BUDGET = 10, 7, 15, 50  # a working bundle must solve them


def make_bundle(planner: Path, evaluation: Path, episodes: Episodes, making: Making, out: Path) -> Path:
    """From a trained planner's folder and the folder of its evaluation. An earlier bundle is replaced when the new one is whole."""
    trained = load_bundle(planner)
    summary = read_json(evaluation / "summary.json")
    measured = {method["weights"] for method in summary["methods"] if method["method"] in OURS}
    if measured != {trained.digest}:
        raise ValueError(
            f"{evaluation} measured other weights than those in {planner}. Evaluate them: leplanner evaluate"
        )
    if summary["errors"]:
        raise ValueError(
            f"{summary['errors']} trials of {evaluation} raised. Run the evaluation again, then make the bundle."
        )
    fresh = out.with_name(out.name + ".new")
    shutil.rmtree(fresh, ignore_errors=True)
    fresh.mkdir(parents=True)
    copied = {path: path.name for path in planner.glob("*.safetensors")} | {planner / "config.json": "config.json"}
    copied |= {evaluation / "summary.json": "evaluation.json"}
    for path, name in copied.items():
        shutil.copyfile(path, fresh / name)
    save_manifest(load_manifest(evaluation / "manifest.json"), fresh / "manifest.json")
    save_manifest(_easy_trials(out, episodes, trained.world.spec.task), fresh / "easy.json")
    with atomic_path(fresh / "README.md") as temporary:
        temporary.write_text(model_card(planner, evaluation, making))
    shutil.rmtree(out, ignore_errors=True)
    fresh.rename(out)
    return out


def _easy_trials(earlier: Path, episodes: Episodes, name: str) -> Manifest:
    """Drawing them tries doing nothing in the simulator, so an earlier bundle's are kept if they are of the same data."""
    from ..tasks.swm_simulator import make_simulator

    task = get_task(name)
    wanted = (task.name, "nontrivial", EASY_OFFSET, EASY_BUDGET, EASY_SEED)
    if (earlier / "easy.json").exists():
        found = load_manifest(earlier / "easy.json")
        if (found.setting, found.data_digest) == (wanted, episodes.digest):
            return found
    return draw_manifest(
        task,
        episodes,
        EASY_TRIALS,
        EASY_SEED,
        offset=EASY_OFFSET,
        budget=EASY_BUDGET,
        simulator=lambda: make_simulator(task),
    )
