"""A small evaluation with videos, for all tests of the report."""

from __future__ import annotations

import json

import numpy as np
import pytest

from leplanner.evaluation.manifest import draw_manifest, save_manifest
from leplanner.evaluation.runner import EvaluationConfig, evaluate
from leplanner.evaluation.summary import plain, summarize
from leplanner.evaluation.videos import load_video
from leplanner.execution.executor import make_executor
from leplanner.planner.planner import save_bundle
from leplanner.tasks import TASKS


@pytest.fixture(scope="session")
def evaluated(tiny_planner, tworoom, tmp_path_factory):
    """Six trials of three methods; two trials are recorded, and what our plans imagine there is decoded to grays."""
    folder = tmp_path_factory.mktemp("evaluated")
    save_bundle(tiny_planner, folder / "bundle")
    spec = tiny_planner.world.spec
    sizes = {"block": spec.actions.block, "context": spec.context}
    manifest = draw_manifest(TASKS["tworoom"], tworoom, 6, 1, "official", **sizes)
    save_manifest(manifest, folder / "manifest.json")
    config = EvaluationConfig(("leplanner", "replay", "no-op"), (1,), seed=1, videos=2)
    executor = make_executor(workers=2)
    rows = evaluate(folder / "bundle", folder / "manifest.json", config, folder / "rows.jsonl", executor=executor)
    summary = plain(summarize(rows, "leplanner"), "tworoom", "leplanner", manifest.digest, config.settings, rows)
    (folder / "summary.json").write_text(json.dumps(summary))
    for path in (folder / "videos").glob("leplanner-*"):
        trace = load_video(path).trace
        (folder / "imagined").mkdir(exist_ok=True)
        frames = np.zeros((*trace.imagined.shape[:2], 32, 32, 3), np.uint8)
        frames += (40 * np.arange(frames.shape[1], dtype=np.uint8) + 20).reshape(1, -1, 1, 1, 1)
        np.savez(folder / "imagined" / path.name, frames=frames)
    return folder
