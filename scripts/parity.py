"""Records what a change of structure must not change: plans, rows, losses, latents and exported graphs, bit by bit.

python scripts/parity.py record OUT.json [--compiled]  # in the tree before and in the tree after
python scripts/parity.py compare A.json B.json         # on one machine: exits with 1 and names what differs
"""

from __future__ import annotations

import hashlib
import json
import sys
import tempfile
from pathlib import Path
from typing import Any

import numpy as np
import torch

TASKS = ("tworoom", "pusht", "reacher", "cube")


def digest(*arrays: Any) -> str:
    state = hashlib.sha256()
    for array in arrays:
        values = np.ascontiguousarray(array.detach().cpu().numpy() if isinstance(array, torch.Tensor) else array)
        state.update(str((values.dtype, values.shape)).encode() + values.tobytes())
    return state.hexdigest()[:16]


def plans(compiled: bool) -> dict[str, Any]:
    """Of the shipped bundles on 20 fixed problems by every engine, with their encoders and their ONNX graphs."""
    import leplanner as lp
    from leplanner.planner.engines import random_problem
    from leplanner.planner.engines.onnx_models import encoder_model, plan_model, rollout_model

    record: dict[str, Any] = {}
    for task in TASKS:
        for engine in ("eager", "onnx", *(["compiled"] if compiled else [])):
            planner = lp.load(task, engine=engine)
            problem = random_problem(planner.model, batch=20)
            plan = planner.plan(problem)
            imagined = planner.imagine(problem, plan.blocks.flip(1).contiguous())
            record[f"{task} {engine}"] = digest(plan.blocks, plan.latents, plan.distances, imagined)
            frames = np.random.default_rng(0).integers(0, 256, (2, *[planner.world.spec.frame_size] * 2, 3), np.uint8)
            record[f"{task} {engine} latents"] = digest(planner.encode(frames))
            if engine == "eager":
                record[f"{task} values"] = plan.blocks[0, 0].tolist()
        graphs = {
            "plan": plan_model(planner.dynamics, planner.model, "B", {}),
            "encoder": encoder_model(planner.world, "B", {}),
            "rollout": rollout_model(planner.dynamics, planner.model, "B", {}),
        }
        for name, graph in graphs.items():
            record[f"{task} {name}.onnx"] = hashlib.sha256(graph.SerializeToString(deterministic=True)).hexdigest()[:16]
    return record


METHODS = ("leplanner-reuse", "leplanner", "cem", "random", "no-op", "replay")
OUTCOMES = ("any", "final", "held", "moderate", "strict", "first_success", "final_error")


def rows() -> dict[str, Any]:
    """Of the first ten trials that each bundle was measured on, without times."""
    from leplanner.control.methods import SearchBudget
    from leplanner.evaluation.runner import EvaluationConfig, evaluate
    from leplanner.zoo import shipped

    record: dict[str, Any] = {}
    config = EvaluationConfig(METHODS, (1, 5), search=SearchBudget(30, 2), trials=10)
    for task in TASKS:
        with tempfile.TemporaryDirectory() as folder:
            bundle = shipped()[task]
            for row in evaluate(bundle, bundle / "manifest.json", config, Path(folder) / "rows.jsonl"):
                assert row.error is None, row.error
                values = [row.outcome[name] for name in OUTCOMES] + [row.decisions, row.transitions, row.imagined]
                record[f"{task} {row.method} m={row.replan} trial {row.trial}"] = values
    return record


def losses() -> dict[str, Any]:
    """The first 50 of every training stage on fixed tiny data."""
    import leplanner.baselines  # noqa: F401  (registers them)
    from leplanner.baselines.learned import LEARNED, train_baseline
    from leplanner.core.config import changed
    from leplanner.data.cache import build_cache
    from leplanner.data.collect import collect
    from leplanner.data.formats import open_episodes
    from leplanner.density.train import train_density
    from leplanner.diagnostics.decoder import DecoderConfig, train_decoder
    from leplanner.pipeline.presets import get_preset
    from leplanner.planner.train import train_planner
    from leplanner.tasks import get_task
    from leplanner.worlds.finetune import finetune_world
    from leplanner.worlds.train import train_world

    record: dict[str, Any] = {}
    for name in ("tworoom", "pusht"):
        task = get_task(name)
        preset = get_preset(task, "tiny")
        with tempfile.TemporaryDirectory() as path:
            base = Path(path)
            episodes = open_episodes(collect(task, preset.collect, base / "data.h5"), task)
            record[f"{name} data"] = digest(episodes.frames, np.nan_to_num(episodes.actions), episodes.states)

            def note(stage: str, folder: Path, name: str = name) -> None:
                lines = [json.loads(line) for line in (folder / "metrics.jsonl").read_text().splitlines()]
                record[f"{name} {stage}"] = [line["loss"] for line in lines if "loss" in line]
                assert len(lines) == 50, stage

            short = {"steps": 50, "validate_every": 1}
            sizes = (preset.family, preset.network, preset.objective, changed(preset.world, **short))
            world = train_world(task, episodes, *sizes, base / "world", preset.block)
            note("world", base / "world")

            def encode(frames: np.ndarray, world: Any = world) -> np.ndarray:
                return world.encode(frames).float().cpu().numpy()

            cache = build_cache(episodes, encode, world.latent, world.encoder_digest, base / "latents")
            record[f"{name} latents"] = digest(np.asarray(cache.latents))
            for optimizer in ("adamw", "muon"):
                config = changed(preset.finetune, **short, optimizer=optimizer)
                finetuned = finetune_world(world, cache, config, base / f"finetuned-{optimizer}")
                note(f"finetune {optimizer}", base / f"finetuned-{optimizer}")
            density = train_density(finetuned, cache, changed(preset.density, **short), base / "density")
            note("density", base / "density")
            plain = changed(preset.training, **short)
            variants = {
                "plain": plain,
                "all terms": changed(
                    plain,
                    tracking_weight=0.3,
                    smooth_weight=1e-3,
                    perturb_prob=0.25,
                    far_goal_prob=0.4,
                    optimizer="muon",
                ),
                "fixed-terminal": changed(plain, objective="fixed-terminal", path_weight=0.25),
            }
            for title, config in variants.items():
                train_planner(finetuned, cache, density, preset.planner, config, base / title)
                note(f"planner, {title}", base / title)
            for method in LEARNED:
                train_baseline(method, finetuned, cache, changed(preset.baselines, **short), base / method)
                note(method, base / method)
            decoder = DecoderConfig(finetuned.latent.size, finetuned.spec.frame_size)
            train_decoder(finetuned, episodes, decoder, changed(preset.decoder, **short), base / "decoder")
            note("decoder", base / "decoder")
    return record


def main() -> int:
    verb, *paths = sys.argv[1:]
    if verb == "record":
        torch.set_num_threads(2)
        value = {"losses": losses(), "plans": plans("--compiled" in paths), "rows": rows()}
        Path(paths[0]).write_text(json.dumps(value, indent=1))
        return 0
    one, other = (json.loads(Path(path).read_text()) for path in paths)
    different = [
        f"{part}: {name}"
        for part in one
        for name in sorted(one[part].keys() | other[part].keys())
        if one[part].get(name) != other[part].get(name)
    ]
    print("\n".join(different) or "identical")
    return 1 if different else 0


if __name__ == "__main__":
    sys.exit(main())
