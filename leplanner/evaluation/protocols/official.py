"""`official`: the very trials that LeWM's own evaluation draws from a dataset with a seed."""

from __future__ import annotations

import numpy as np

from ...core.actions import Array
from .base import Protocol, TrialRequest


def _draw(request: TrialRequest) -> Array:
    """As `run` of le-wm's eval.py and of stable-worldmodel's scripts/plan/eval_wm.py drew for published results: it
    never drew the last candidate. Since stable-worldmodel's commit 3cb0b58 of July 2026 they may draw it too, so that
    other trials follow from the same seed. Both sort what they drew; here the order of the draw stays, since searches
    may run the first trials only, and these should be a draw too."""
    rows = request.candidates()
    available = len(rows) - 1
    if available < request.count:
        return rows[: max(available, 0)]
    chosen = np.random.default_rng(request.seed).choice(available, size=request.count, replace=False)
    return rows[chosen]


OFFICIAL = Protocol("official", "from all episodes, as LeWM's own evaluation draws them", _draw)
