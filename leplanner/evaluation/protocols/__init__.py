"""Trial protocols by name. A new one is a `Protocol` in its own file, and a line here."""

from __future__ import annotations

from .base import PROTOCOLS, Protocol, TrialRequest
from .clear_lewm import MODERATE, MODERATE_V08, STRICT, STRICT_V08
from .held_out import HELD_OUT, NONTRIVIAL
from .official import OFFICIAL

for protocol in (NONTRIVIAL, HELD_OUT, OFFICIAL, MODERATE, STRICT, MODERATE_V08, STRICT_V08):
    PROTOCOLS.register(protocol)

__all__ = ["PROTOCOLS", "Protocol", "TrialRequest"]
