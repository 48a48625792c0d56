"""Which trials a protocol draws: the digests of known draws, published draws, and near-misses that filters must tell
apart."""

from __future__ import annotations

import numpy as np
import pytest
from own_task import TASK as DOT
from support import synthetic_episodes

from leplanner.evaluation.manifest import draw_manifest

# drawn before protocols were a registry: frozen trials must stay what they are
KNOWN = {
    (1, "heldout"): "ff41c204a2d7da8398ff8fcc58b9b22b0d12dfcad122b513cbc8911b9c96565f",
    (1, "nontrivial"): "7be442692eecde2225308fa44ba492c2a417fcc76a12a0ac921f104aada5bf63",
    (5, "heldout"): "8a43593e43f316d8328ac380a9a4429256c294ee1efd678083fb09de46a145a6",
    (5, "nontrivial"): "e7e7259bf907c7454fef5696f03c0d3c58099a93f7f9d4a1a8850c1e15397799",
}


def dots(steps_per_row: int = 1, episodes: int = 60, rows: int = 40):
    return synthetic_episodes(np.random.default_rng(0), lengths=(rows,) * episodes, steps_per_row=steps_per_row)


@pytest.mark.parametrize(("steps_per_row", "protocol"), KNOWN)
def test_a_protocol_draws_what_it_always_drew(steps_per_row, protocol):
    settings = {"offset": 5 * steps_per_row, "block": 5, "context": 3, "simulator": DOT.simulate}
    manifest = draw_manifest(DOT, dots(steps_per_row), 6, 42, protocol, **settings)
    assert manifest.digest == KNOWN[steps_per_row, protocol]
