"""Imports stable-worldmodel safely: headless GL chosen first, torchvision's missing operators
declared, warnings kept out."""

from __future__ import annotations

import importlib
import os
import sys
import warnings
from types import ModuleType
from typing import Any

import torch

GL_PACKAGES = ("libegl1", "libgl1", "libglx-mesa0", "libgl1-mesa-dri")
_operators: list[torch.library.Library] = []  # a Library undoes its definitions when collected


def choose_gl_backend() -> str:
    """MuJoCo reads MUJOCO_GL when first imported. A choice of the user's stands; a headless Linux gets EGL."""
    if sys.platform.startswith("linux") and "MUJOCO_GL" not in os.environ:
        os.environ["MUJOCO_GL"] = "egl"
    if os.environ.get("MUJOCO_GL") in ("egl", "osmesa"):
        os.environ.setdefault("PYOPENGL_PLATFORM", os.environ["MUJOCO_GL"])
    return os.environ.get("MUJOCO_GL", "platform default")


def _declare_torchvision_operators() -> None:
    """A CPU-only torch with a torchvision built for CUDA lacks two operators that `import torchvision` asks for."""
    missing = [name for name in ("nms", "qnms") if not hasattr(torch.ops.torchvision, name)]
    if missing and "torchvision" not in sys.modules:
        library = torch.library.Library("torchvision", "FRAGMENT")
        for name in missing:
            library.define(f"{name}(Tensor dets, Tensor scores, float iou_threshold) -> Tensor")
        _operators.append(library)


def import_swm(module: str = "stable_worldmodel") -> ModuleType:
    """`stable_worldmodel` or one of its modules, or an error that names the extra to install."""
    choose_gl_backend()
    os.environ.setdefault("PYGAME_HIDE_SUPPORT_PROMPT", "1")
    if "SDL_VIDEODRIVER" not in os.environ and "DISPLAY" not in os.environ:
        os.environ["SDL_VIDEODRIVER"] = "dummy"
    try:
        importlib.import_module("torchvision._C")
    except (ImportError, OSError, RuntimeError):
        _declare_torchvision_operators()
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        try:
            return importlib.import_module(module)
        except ImportError as error:
            raise ImportError(
                f"This needs stable-worldmodel and its environments, but {error.name or module!r} "
                f"could not be imported ({error}). Install them with: pip install 'leplanner[sim]'"
            ) from error


def make_swm_solver(name: str, cost: Any, **options: Any) -> Any:
    """One of stable-worldmodel's solvers by its class name. Release 0.1.1 has them in `solver` and calls what they
    search with `model`; the main branch has them in `planning.solver` and calls it `cost`."""
    if hasattr(import_swm(), "solver"):
        return getattr(import_swm("stable_worldmodel.solver"), name)(model=cost, **options)
    return getattr(import_swm("stable_worldmodel.planning.solver"), name)(cost=cost, **options)


def make_env(env_id: str, **options: Any):
    """The bare environment, without gymnasium's wrappers: the runner decides when an episode ends."""
    import_swm("stable_worldmodel.envs")
    import gymnasium

    # swm's spaces hand numpy scalars to gymnasium, which says so on every reset
    warnings.filterwarnings("ignore", message=".*Casting input x to numpy array")
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        return gymnasium.make(env_id, disable_env_checker=True, **options).unwrapped


def shrink(frame: Any, size: int) -> Any:
    """A square frame at another size, by averaging."""
    import cv2
    import numpy as np

    if frame.shape[0] == size:
        return np.ascontiguousarray(frame)
    return cv2.resize(frame, (size, size), interpolation=cv2.INTER_AREA)
