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
sys.path.insert(0, str(ROOT))  # the tree that this script is part of

import leplanner as lp  # noqa: E402
from leplanner.artifacts import write_json  # noqa: E402
from leplanner.control.methods import SearchBudget  # noqa: E402
from leplanner.diagnostics.projection import projection_of  # noqa: E402
from leplanner.planner.export import export_onnx, metadata  # noqa: E402
from leplanner.tasks.tworoom import SUCCESS_PX  # noqa: E402
from leplanner.zoo import shipped  # noqa: E402

TASK, SIDE = "tworoom", 224  # px of the floor plan
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


def position_probe(planner: lp.LoadedPlanner) -> dict[str, Any]:
    """The bundle's linear map from latents to the dot's place, to draw what is imagined, in px of the floor plan: a row
    of weights for x and one for y, an offset, and the error on pictures it was not fitted on."""
    projection = projection_of(planner.world, lp.get_task(TASK), shipped()[TASK])
    weights, offset = (SIDE * part.float() for part in (projection.weights[:, 0].T, projection.offset[0]))
    error = projection.error_px[0] * SIDE / planner.world.spec.frame_size
    return {"weights": weights.tolist(), "offset": offset.tolist(), "error_px": error}


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
        "transitions": planner.transitions_per_plan + horizon,  # and those of the last plan, imagined again
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
