"""The latent cache: a dataset encoded once to an fp16 array that is mapped, not loaded.

The folder holds `latents.npy` (rows, *Z), `index.npz` (episodes, actions, states, goals) and `config.json` with the
digests of the encoder and of the data: worlds that were finetuned from one another share an encoder, and so their
cache. While it is being made, `latents.npy.partial` grows and `progress.json` says how far it is whole.
"""

from __future__ import annotations

import math
import shutil
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np

from ..artifacts import folder_lock, is_whole, read_artifact, read_json, write_arrays, write_artifact, write_json
from ..core.latent import LatentSpec
from .episodes import Array, Episodes, read_frames

KIND = "latent cache"


@dataclass(frozen=True)
class LatentCache:
    latents: Array = field(repr=False)  # (R, *Z) fp16, memory-mapped
    episodes: Episodes  # the same rows; its frames are empty
    encoder_digest: str
    data_digest: str


def build_cache(
    episodes: Episodes,
    encode: Callable[[Array], Array],  # uint8 (B, S, S, 3) -> (B, *Z)
    latent: LatentSpec,
    encoder_digest: str,
    folder: Path,
    known: LatentCache | None = None,
    batch: int = 256,
    save_every: int = 16,
    progress: Callable[[int, int], None] = lambda done, total: None,
) -> LatentCache:
    """Encode what is missing; a finished cache of the same encoder and data is returned as it is. `known`: a cache of
    data with which these begin, whose latents are taken over."""
    with folder_lock(folder):
        if not is_whole(folder):
            _build(episodes, encode, latent, encoder_digest, folder, known, batch, save_every, progress)
        return open_cache(folder, encoder_digest, episodes.digest)


def _build(
    episodes: Episodes,
    encode: Callable[[Array], Array],
    latent: LatentSpec,
    encoder_digest: str,
    folder: Path,
    known: LatentCache | None,
    batch: int,
    save_every: int,
    progress: Callable[[int, int], None],
) -> None:
    partial, progress_file = folder / "latents.npy.partial", folder / "progress.json"
    identity = {"encoder_digest": encoder_digest, "data_digest": episodes.digest}
    done = 0
    if not partial.exists() and (folder / "latents.npy").exists():  # killed just before its config was written
        (folder / "latents.npy").replace(partial)
    if progress_file.exists() and partial.exists():
        state = read_json(progress_file)
        if {name: state[name] for name in identity} == identity:
            done = state["rows"]
    if done:
        latents = np.lib.format.open_memmap(partial, mode="r+")
    else:
        write_json(progress_file, {**identity, "rows": 0})  # before the file of another encoder goes
        partial.unlink(missing_ok=True)
        _check_room(folder, episodes.rows, latent)
        latents = np.lib.format.open_memmap(partial, mode="w+", dtype=np.float16, shape=(episodes.rows, *latent.shape))
        if known is not None:
            _check_beginning(known, episodes, encoder_digest)
            done = len(known.latents)
            latents[:done] = known.latents
    progress(done, episodes.rows)
    while done < episodes.rows:
        stop = min(done + batch * save_every, episodes.rows)
        for start in range(done, stop, batch):
            rows = np.arange(start, min(start + batch, stop))
            encoded = np.asarray(encode(read_frames(episodes, rows)), dtype=np.float16)
            if not np.isfinite(encoded).all():
                raise FloatingPointError(
                    f"The world encodes a frame in rows {start}..{rows[-1]} to a latent that fp16 cannot hold. "
                    "Its training has diverged; train it again."
                )
            latents[rows] = encoded
            progress(int(rows[-1]) + 1, episodes.rows)
        latents.flush()
        done = stop
        write_json(progress_file, {**identity, "rows": done})
    del latents
    columns = {"starts": episodes.starts, "lengths": episodes.lengths, "ids": episodes.ids, "actions": episodes.actions}
    if episodes.states is not None:
        columns["states"] = episodes.states
    if episodes.goal_rows is not None:
        columns["goal_rows"] = episodes.goal_rows
    write_arrays(folder / "index.npz", columns)
    partial.replace(folder / "latents.npy")
    contents = {**identity, "rows": episodes.rows, "latent": latent.shape}
    contents |= {"steps_per_row": episodes.steps_per_row, "meta": episodes.meta}
    write_artifact(folder, KIND, contents, encoder=encoder_digest, data=episodes.digest)
    progress_file.unlink()


def _check_room(folder: Path, rows: int, latent: LatentSpec) -> None:
    """The file takes its room as it is filled: too little would end the run hours later."""
    numbers = math.prod(latent.shape)
    needed, free = 2 * rows * numbers, shutil.disk_usage(folder).free
    if needed > free:
        raise ValueError(
            f"The latents of {rows:,} frames, {numbers:,} numbers of two bytes each, take {needed / 1e9:.1f} GB; "
            f"{folder} has {free / 1e9:.1f} GB free. Choose an --out with more room, fewer episodes, or a world with "
            "smaller latents."
        )


def _check_beginning(known: LatentCache, episodes: Episodes, encoder_digest: str) -> None:
    rows, past = len(known.latents), known.episodes
    count = len(past.starts)
    same = past.meta.get("visuals") == episodes.meta.get("visuals")
    same &= np.array_equal(past.actions, episodes.actions[:rows], equal_nan=True)
    same &= all(np.array_equal(getattr(past, name), getattr(episodes, name)[:count]) for name in ("starts", "ids"))
    same &= (past.states is None) == (episodes.states is None)
    if past.states is not None and episodes.states is not None:
        same &= np.array_equal(past.states, episodes.states[:rows])
    if known.encoder_digest != encoder_digest or not same:
        raise ValueError(
            "The known latents are of another encoder, or of data with which these do not begin. Leave them "
            "out, and every frame is encoded."
        )


def open_cache(folder: str | Path, encoder_digest: str | None = None, data_digest: str | None = None) -> LatentCache:
    """Open a finished cache; when digests are given, they must be the cache's own."""
    folder = Path(folder)
    if not is_whole(folder) and (folder / "progress.json").exists():
        raise ValueError(f"The latent cache at {folder} is unfinished: run the same `leplanner cache` command again.")
    config = read_artifact(folder, KIND)
    for name, expected in (("encoder_digest", encoder_digest), ("data_digest", data_digest)):
        if expected is not None and config[name] != expected:
            what = name.removesuffix("_digest")
            raise ValueError(
                f"The cache at {folder} was made with another {what} ({config[name][:12]}, requested {expected[:12]}). "
                "Choose another --out, or delete the folder and make it again."
            )
    latents = np.load(folder / "latents.npy", mmap_mode="r")
    shape = (config["rows"], *config["latent"])
    if latents.shape != shape or latents.dtype != np.float16:
        raise ValueError(f"{folder}/latents.npy has shape {latents.shape}, expected {shape}. Make it again.")
    with np.load(folder / "index.npz") as index:
        columns = {name: index[name] for name in index.files}
    episodes = Episodes(
        frames=np.empty((config["rows"], 0, 0, 3), np.uint8),
        actions=columns["actions"],
        states=columns.get("states"),
        starts=columns["starts"],
        lengths=columns["lengths"],
        ids=columns["ids"],
        steps_per_row=config["steps_per_row"],
        digest=config["data_digest"],
        meta=config["meta"],
        goal_rows=columns.get("goal_rows"),
    )
    return LatentCache(latents, episodes, config["encoder_digest"], config["data_digest"])
