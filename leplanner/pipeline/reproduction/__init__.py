"""The paper's whole experiment on one task: every table and figure from one world, one set of planners and trials."""

from .claim import CLAIM, SYMPTOM
from .inputs import INPUTS
from .mechanism import ARRIVAL, LOOP, REFINEMENT
from .part import PARTS, Part
from .pictures import PICTURES
from .run import PAGE, reproduce
from .setting import ReproduceOptions, Reproduction, plan_reproduction
from .success import DRAWS, SUCCESS, WALL_CLOCK

for part in (INPUTS, SUCCESS, WALL_CLOCK, CLAIM, SYMPTOM, ARRIVAL, LOOP, REFINEMENT, DRAWS, PICTURES):
    PARTS.register(part)  # in the order of the page

__all__ = ["PAGE", "PARTS", "Part", "ReproduceOptions", "Reproduction", "plan_reproduction", "reproduce"]
