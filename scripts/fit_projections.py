"""Fit the projections of the shipped bundles, from imagined latents to places in the picture, and print their errors.

python scripts/fit_projections.py [TASK ...]
"""

from __future__ import annotations

import sys

import leplanner as lp
from leplanner.diagnostics.projection import FILE, fit_projection, save_projection
from leplanner.zoo import shipped

for name in sys.argv[1:] or shipped():
    world = lp.load(name).world
    projection = fit_projection(world, lp.get_task(name))
    save_projection(projection, shipped()[name] / FILE)
    errors = ", ".join(f"{error:.2f}" for error in projection.error_px)
    print(f"{name}: held-out error {errors} px of {world.spec.frame_size}")
