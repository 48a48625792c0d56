"""What LePlanner is compared with: floors, a ceiling, search, learned policies, and a world's own planner. One file
each, registered here."""

from ..control.methods import METHODS
from . import gcbc, gcidm, gciql, gcivl, search, simple, tdmpc2
from .learned import register_baseline

for method in search.METHODS:
    METHODS.register(method)
for module in (gcidm, gcbc, gcivl, gciql):
    register_baseline(module.BASELINE)
METHODS.register(tdmpc2.METHOD)
for method in simple.METHODS:
    METHODS.register(method)
