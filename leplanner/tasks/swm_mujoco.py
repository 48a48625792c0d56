"""How MuJoCo draws, and a camera that does it. Imported where a simulator is really wanted."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, TypeVar

import numpy as np

from .spec import Array
from .swm_runtime import GL_PACKAGES, shrink

Made = TypeVar("Made")


@dataclass(frozen=True)
class Visuals:
    """Stored with every dataset; evaluation must draw alike."""

    shadows: bool = False
    antialias: int = 0  # samples a pixel
    supersample: int = 2  # render this many times larger and average
    merge_m: float = 0.0  # vertices of a mesh within a cell of this size are drawn as one

    @staticmethod
    def of(recorded: Mapping[str, Any]) -> Visuals:
        return Visuals(**recorded)


def with_rendering(make: Callable[[], Made]) -> Made:
    """MuJoCo loads GL on import: what is missing then is explained."""
    try:
        return make()
    except ModuleNotFoundError as error:
        raise ImportError(f"{error}. Install it with: pip install 'leplanner[sim]'") from error
    except (ImportError, AttributeError, OSError) as error:
        raise rendering_failed(error) from error


def rendering_failed(error: Exception) -> RuntimeError:
    return RuntimeError(
        f"MuJoCo could not start rendering ({type(error).__name__}: {error}). On a headless Debian or Ubuntu, "
        f"install: apt-get install {' '.join(GL_PACKAGES)}; or choose another backend with MUJOCO_GL=egl|osmesa|glfw."
    )


class MujocoCamera:
    """Draws through MuJoCo's own renderer, which makes its GL context current for every frame. dm_control's does not
    when another renderer took over, and then draws one environment's frames into another's."""

    def __init__(self, model: Any, data: Any, camera: int | str, visuals: Visuals):
        self.model, self.data, self.camera, self.visuals = model, data, camera, visuals
        model.vis.quality.offsamples = visuals.antialias
        if visuals.merge_m:
            merge_vertices(model, visuals.merge_m)
        self.renderers: dict[int, Any] = {}

    def render(self, size: int) -> Array:
        import mujoco

        drawn = size * self.visuals.supersample
        if drawn not in self.renderers:
            self.model.vis.global_.offwidth = self.model.vis.global_.offheight = drawn
            try:
                self.renderers[drawn] = mujoco.Renderer(self.model, drawn, drawn)
            except (ImportError, AttributeError, OSError, RuntimeError) as error:
                raise rendering_failed(error) from error
        renderer = self.renderers[drawn]
        renderer.update_scene(self.data, camera=self.camera)
        renderer.scene.flags[mujoco.mjtRndFlag.mjRND_SHADOW] = self.visuals.shadows  # pyright: ignore[reportAttributeAccessIssue]
        return shrink(renderer.render(), size)

    def close(self) -> None:
        for renderer in self.renderers.values():
            renderer.close()
        self.renderers.clear()


def merge_vertices(model: Any, cell_m: float) -> None:
    """Draw each mesh with one vertex a cell, without the triangles that vanish by that. Contacts are computed from
    vertices and hulls, which stay as they are."""
    for mesh in range(model.nmesh):
        vertices = model.mesh_vertadr[mesh] + np.arange(model.mesh_vertnum[mesh])
        first = model.mesh_faceadr[mesh]
        faces = first + np.arange(model.mesh_facenum[mesh])
        cells = np.floor(model.mesh_vert[vertices] / cell_m).astype(np.int64)
        _, chosen, cell = np.unique(cells, axis=0, return_index=True, return_inverse=True)
        corners = chosen[cell.reshape(-1)][model.mesh_face[faces]]
        a, b, c = corners.T
        _, distinct = np.unique(np.sort(corners, axis=1), axis=0, return_index=True)
        kept = np.intersect1d(np.flatnonzero((a != b) & (b != c) & (c != a)), distinct)
        if len(kept) == 0:  # smaller than a cell
            continue
        for name, values in (
            ("mesh_face", corners[kept]),
            ("mesh_facenormal", model.mesh_facenormal[faces[kept]]),
            ("mesh_facetexcoord", model.mesh_facetexcoord[faces[kept]]),
        ):
            getattr(model, name)[first : first + len(kept)] = values
        model.mesh_facenum[mesh] = len(kept)
