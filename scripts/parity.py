"""Records what a change of structure must not change: plans, rows, losses, latents and exported graphs, bit by bit.

    python scripts/parity.py record OUT.json        # in the tree before and in the tree after
    python scripts/parity.py compare A.json B.json  # on one machine: exits with 1 and names what differs
"""

from __future__ import annotations

import hashlib
import json
import sys
import tempfile
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import torch

TASKS = ("tworoom", "pusht", "reacher", "cube")


def digest(*arrays: Any) -> str:
    found = hashlib.sha256()
    for array in arrays:
        values = np.ascontiguousarray(array.detach().cpu().numpy() if isinstance(array, torch.Tensor) else array)
        found.update(str((values.dtype, values.shape)).encode() + values.tobytes())
    return found.hexdigest()[:16]


def plans(compiled: bool) -> dict[str, Any]:
    import leplanner as lp
    from leplanner.planner.engine import random_problem
    from leplanner.planner.onnx_graph import plan_graph
    from leplanner.world.onnx_graph import encoder_graph, rollout_graph

    found: dict[str, Any] = {}
    for task in TASKS:
        for engine in ("eager", "onnx", *(["compiled"] if compiled else [])):
            planner = lp.load(task, engine=engine)
            problem = random_problem(planner.model, batch=20)
            plan = planner.plan(problem)
            imagined = planner.imagine(problem, plan.blocks.flip(1).contiguous())
            found[f"{task} {engine}"] = digest(plan.blocks, plan.latents, plan.distances, imagined)
            frames = np.random.default_rng(0).integers(0, 256, (2, *[planner.world.spec.frame_size] * 2, 3), np.uint8)
            found[f"{task} {engine} latents"] = digest(planner.world.encode(frames))
            if engine == "eager":
                found[f"{task} values"] = plan.blocks[0, 0].tolist()
        graphs = {
            "plan": plan_graph(planner.model, planner.world.model, "B", {}),
            "encoder": encoder_graph(planner.world, "B", {}),
            "rollout": rollout_graph(planner.world.model, planner.model.config.horizon, "B", {}),
        }
        for name, graph in graphs.items():
            found[f"{task} {name}.onnx"] = hashlib.sha256(graph.SerializeToString(deterministic=True)).hexdigest()[:16]
    return found


METHODS = ("leplanner-keep", "leplanner", "cem", "random", "nothing", "replay")
OUTCOMES = ("success_any", "success_final", "success_held", "strict", "first_success", "final_error")


def rows() -> dict[str, Any]:
    from leplanner.evaluation.runner import EvaluationConfig, evaluate
    from leplanner.zoo import shipped

    found: dict[str, Any] = {}
    config = EvaluationConfig(METHODS, (1, 5), samples=30, rounds=2, trials=10)
    for task in TASKS:
        with tempfile.TemporaryDirectory() as folder:
            bundle = shipped()[task]
            for row in evaluate(bundle, bundle / "manifest.json", config, Path(folder) / "rows.jsonl"):
                assert row.error is None, row.error
                values = [getattr(row, name) for name in OUTCOMES] + [row.decisions, row.rows, row.imagined]
                found[f"{task} {row.method} m={row.replan} trial {row.trial}"] = values
    return found


def losses() -> dict[str, Any]:
    from leplanner.baselines.learned import LEARNED, train_baseline
    from leplanner.data.cache import build_cache
    from leplanner.data.collect import collect
    from leplanner.data.episodes import open_episodes
    from leplanner.density.train import train_density
    from leplanner.diagnostics.decoder import DecoderConfig, train_decoder
    from leplanner.planner.train import train_planner
    from leplanner.presets.scales import tiny
    from leplanner.tasks import get_task
    from leplanner.world.refine import refine_world
    from leplanner.world.train import train_world

    found: dict[str, Any] = {}
    for name in ("tworoom", "pusht"):
        preset, task = tiny(name), get_task(name)
        with tempfile.TemporaryDirectory() as path:
            base = Path(path)
            episodes = open_episodes(collect(preset.collect, base / "data.h5"), task)
            found[f"{name} data"] = digest(episodes.frames, np.nan_to_num(episodes.actions), episodes.states)

            def note(stage: str, folder: Path, name: str = name) -> None:
                lines = [json.loads(line) for line in (folder / "metrics.jsonl").read_text().splitlines()]
                found[f"{name} {stage}"] = [line["loss"] for line in lines if "loss" in line]
                assert len(lines) == 50, stage

            short = {"steps": 50, "validate_every": 1}
            world = train_world(task, episodes, preset.model, replace(preset.train, **short), base / "world")
            note("world", base / "world")
            cache = build_cache(episodes, world.latents, world.spec.model.latent, world.encoder_digest, base / "latents")
            found[f"{name} latents"] = digest(np.asarray(cache.latents))
            for optimizer in ("adamw", "muon"):
                config = replace(preset.refine, **short, optimizer=optimizer)
                refined = refine_world(world, cache, config, base / f"refined-{optimizer}")
                note(f"finetune {optimizer}", base / f"refined-{optimizer}")
            density = train_density(refined, cache, replace(preset.density, **short), base / "density")
            note("density", base / "density")
            shape = preset.planner_for(refined.spec.model)
            plain = replace(preset.planner_train, **short)
            variants = {
                "plain": plain,
                "all terms": replace(
                    plain,
                    way_weight=0.3,
                    smooth_weight=1e-3,
                    deviate_share=0.25,
                    far_share=0.4,
                    optimizer="muon",
                ),
                "fixed-terminal": replace(plain, objective="fixed-terminal", path_weight=0.25),
            }
            for title, config in variants.items():
                train_planner(refined, cache, density, shape, config, base / title)
                note(f"planner, {title}", base / title)
            for method in LEARNED:
                train_baseline(method, refined, cache, replace(preset.baselines, **short), base / method)
                note(method, base / method)
            decoder = DecoderConfig(refined.spec.model.latent, refined.spec.frame_size)
            train_decoder(refined, episodes, decoder, replace(preset.decoder_train, **short), base / "decoder")
            note("decoder", base / "decoder")
    return found


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
