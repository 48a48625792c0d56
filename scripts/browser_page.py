"""Fills docs/browser/built: what the page in which TwoRoom runs in the visitor's browser cannot keep in git.

python scripts/browser_page.py [FOLDER]

Exports the shipped planner, fetches ONNX Runtime for browsers with npm, and writes what the page must know.
Without npm, or where it reaches no registry, it says so and leaves the page as it is: the page then says how to
build it.
"""

from __future__ import annotations

import json
import shutil
import subprocess
import sys
import tarfile
import tempfile
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parent.parent
sys.path[:0] = [str(ROOT), str(ROOT / "examples")]  # the tree that this script is part of

import numpy as np  # noqa: E402
from two_rooms import TwoRooms  # noqa: E402

import leplanner as lp  # noqa: E402
from leplanner.artifacts import write_json  # noqa: E402
from leplanner.control.methods import SearchBudget  # noqa: E402
from leplanner.core.actions import Array  # noqa: E402
from leplanner.planner.export import export_onnx, metadata  # noqa: E402
from leplanner.tasks.tworoom import DOOR_Y, SUCCESS_PX, WALL_X, free_position  # noqa: E402
from leplanner.worlds.validate import ridge  # noqa: E402

TASK = "tworoom"
PACKAGE, VERSION = "onnxruntime-web", "1.30.0"
# The smallest build that it has: WebAssembly alone, in one thread, which needs no special headers of the server.
RUNTIME = ("ort.wasm.bundle.min.mjs", "ort-wasm-simd-threaded.wasm")


def fetch_runtime(out: Path) -> str | None:
    """Puts ONNX Runtime's two files into a folder; why not, if it could not."""
    npm = shutil.which("npm")
    if npm is None:
        return "npm is not installed"
    with tempfile.TemporaryDirectory() as folder:
        command = [npm, "pack", f"{PACKAGE}@{VERSION}", "--pack-destination", folder, "--fetch-retries", "1"]
        done = subprocess.run(command, cwd=folder, capture_output=True, text=True, check=False)
        archive_path = next(Path(folder).glob("*.tgz"), None)
        if archive_path is None:
            errors = [line for line in done.stderr.splitlines() if line.startswith("npm error")]
            return f"npm could not fetch {PACKAGE} {VERSION} ({'; '.join(errors[:3])})"
        with tarfile.open(archive_path) as archive:
            for name in RUNTIME:
                part = archive.extractfile(f"package/dist/{name}")
                assert part is not None
                (out / name).write_bytes(part.read())
    return None


def position_probe(planner: lp.LoadedPlanner, frames: int = 1500) -> dict[str, Any]:
    """A linear map from latents to the dot's position, to draw what is imagined: a row of weights for x and one for y,
    an offset, and the error on frames it was not fitted on."""
    rng = np.random.default_rng(0)
    # free_position leaves out the door, where a map fitted without it is 20 px off
    door = rng.uniform((WALL_X - 13, DOOR_Y - 13), (WALL_X + 13, DOOR_Y + 13), (frames // 5, 2))
    positions = rng.permutation([*door, *(free_position(rng) for _ in range(frames - len(door)))])
    pictures = np.stack([TwoRooms(position, planner.world.spec.frame_size).render() for position in positions])
    latents: Array = planner.encode(pictures).numpy()
    test, train = slice(frames // 5), slice(frames // 5, None)
    # shrunk, so that it does not read from directions of small variance, which imagined latents get wrong
    predict = ridge(latents[train], positions[train], strength=1e-3)
    error = np.linalg.norm(predict(latents[test]) - positions[test], axis=1)
    offset = predict(np.zeros((1, latents.shape[1])))[0]
    weights = predict(np.eye(latents.shape[1])) - offset
    return {"weights": weights.T.tolist(), "offset": offset.tolist(), "error_px": float(np.sqrt(np.mean(error**2)))}


def build(out: Path) -> str | None:
    """All files of the page that are built; why not, if they could not be."""
    out.mkdir(parents=True, exist_ok=True)
    reason = fetch_runtime(out)
    if reason:
        return reason
    planner = lp.load(TASK)
    paths = [*export_onnx(planner, out, batch=1), *(out / name for name in RUNTIME)]
    horizon, search = planner.model.config.horizon, SearchBudget()
    facts = {name: json.loads(value) for name, value in metadata(planner).items()}
    facts |= {
        "version": lp.__version__,
        "runtime": f"{PACKAGE} {VERSION}",
        "refinements": planner.model.config.refinements,
        "transitions": planner.transitions_per_plan,
        "search": {"name": str(search), "transitions": search.samples * search.rounds * horizon},
        "success_px": SUCCESS_PX,
        "probe": position_probe(planner),
        "bytes": {path.name: path.stat().st_size for path in paths},
    }
    write_json(out / "facts.json", facts)  # last: the page looks for it first
    return None


if __name__ == "__main__":
    target = Path(sys.argv[1]) if len(sys.argv) > 1 else ROOT / "docs" / "browser" / "built"
    problem = build(target)
    print(f"docs/browser is not built: {problem}. The page says how." if problem else f"built {target}")
