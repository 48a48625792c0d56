"""Search over the same world with the same context, declared; stable-worldmodel's solvers are
loaded when one is made."""

from __future__ import annotations

from ..control.methods import NO, ORANGE, YES, Method, MethodInputs, PolicyFor, Properties

_SAMPLING = Properties("CEM / MPPI / iCEM", NO, YES, YES, YES, YES, NO)
_GRADIENT = Properties("Gradient optimization", NO, YES, YES, YES, YES, NO)


def _search(kind: str, title: str, properties: Properties) -> Method:
    def make(inputs: MethodInputs) -> PolicyFor:
        from .swm_search import SearchPolicy

        policy = SearchPolicy(kind, inputs.planner.dynamics, inputs.planner.model, inputs.search)
        return lambda trial: policy

    return Method(kind, title, "search", make, ORANGE, properties)


METHODS = (
    _search("cem", "CEM", _SAMPLING),
    _search("icem", "iCEM", _SAMPLING),
    _search("mppi", "MPPI", _SAMPLING),
    _search("gradient", "gradient", _GRADIENT),
)
