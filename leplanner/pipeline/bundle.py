"""A bundle to ship: weights, what they were measured to do and on which trials, a few easy trials, and the card."""

from __future__ import annotations

import shutil
from dataclasses import replace
from pathlib import Path

from ..artifacts import atomic_path, read_json
from ..control.methods import methods_of
from ..data.formats import open_episodes
from ..evaluation.manifest import Manifest, load_manifest, save_manifest
from ..planner.planner import load_bundle
from ..report.card import Making, model_card
from ..tasks import Task
from ..worlds import WorldSpec
from .evaluating import Draw, new_manifest

EASY = Draw(trials=10, seed=7, protocol="nontrivial", offset=15, budget=50)  # a working bundle must solve them
CARD = "README.md"


def make_bundle(task: Task, planner: Path, evaluation: Path, data: Path, making: Making, out: Path) -> Path:
    """From a trained planner's folder and the folder of its evaluation. Files of an earlier bundle are replaced one by
    one, the config last; whatever else the folder holds stays."""
    trained = load_bundle(planner)
    summary = read_json(evaluation / "summary.json")
    measured = {method["weights"] for method in summary["methods"] if method["method"] in methods_of("ours")}
    if measured != {trained.digest}:
        raise ValueError(
            f"{evaluation} measured other weights than those in {planner}. Evaluate them: leplanner evaluate"
        )
    if summary["errors"]:
        raise ValueError(
            f"{summary['errors']} trials of {evaluation} raised. Run the evaluation again, then make the bundle."
        )
    out.mkdir(parents=True, exist_ok=True)
    easy = _easy_trials(task, out, trained.world.spec, data)
    making = replace(making, frames_px=open_episodes(data, task, in_memory=False).frames.shape[1])
    _write_card(out, model_card(planner, evaluation, making))
    weights = {path.name for path in planner.glob("*.safetensors")}
    (out / "config.json").unlink(missing_ok=True)  # until it is there again the folder is not whole
    for stale in {"world", "planner", "density"} - {Path(name).stem for name in weights}:
        (out / f"{stale}.safetensors").unlink(missing_ok=True)
    for name in sorted(weights):
        _copy(planner / name, out / name)
    _copy(evaluation / "summary.json", out / "evaluation.json")
    save_manifest(load_manifest(evaluation / "manifest.json"), out / "manifest.json")
    save_manifest(easy, out / "easy.json")
    _copy(planner / "config.json", out / "config.json")
    return out


def _copy(source: Path, target: Path) -> None:
    with atomic_path(target) as temporary:
        shutil.copyfile(source, temporary)


def _write_card(out: Path, text: str) -> None:
    """An earlier card that differs is kept under another name: somebody may have edited it."""
    card = out / CARD
    if card.exists() and card.read_text(encoding="utf-8") != text:
        numbers = (f"README.previous{number or ''}.md" for number in range(1000))
        card.rename(next(out / name for name in numbers if not (out / name).exists()))
    with atomic_path(card) as temporary:
        temporary.write_text(text, encoding="utf-8")


def _easy_trials(task: Task, earlier: Path, spec: WorldSpec, data: Path) -> Manifest:
    """Drawing them tries the no-op policy in the simulator, so an earlier bundle's are kept
    if they are of the same data."""
    expected = (task.name, EASY.protocol, EASY.offset, EASY.budget, EASY.seed)
    if (earlier / "easy.json").exists():
        known = load_manifest(earlier / "easy.json")
        digest = open_episodes(data, task, in_memory=False).digest
        if (known.setting, known.data_digest) == (expected, digest):
            return known
    return new_manifest(task, data, spec, EASY)
