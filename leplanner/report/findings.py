"""What an evaluation's tables say in words: who reached more goals, at what cost, and whether that may be chance."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from ..control.methods import DEFAULT, METHODS, Role, methods_of
from ..evaluation.metrics import HEADLINE
from ..tasks import get_task
from .tables import Evaluation, MethodRow

FEW = 20  # trials below which counts are shown: an interval would span half the scale
CONTENDERS: dict[Role, str] = {"search": "the strongest search", "learned": "the strongest learned method"}


@dataclass(frozen=True)
class Card:
    """One task at a glance: ours first, then the strongest of each kind of contender."""

    rows: list[MethodRow]
    speed: str  # ours beside the first contender, in words


@dataclass(frozen=True)
class Comparison:
    text: str
    difference: str  # in points, with its interval
    minor: bool  # with a floor or a ceiling


def count_or_rate(rate: dict[str, Any]) -> str:
    """Counts where there are few trials, else percent with the 95 % interval."""
    if rate["trials"] < FEW:
        return f"{rate['successes']} of {rate['trials']}"
    return f"{100 * rate['value']:.3g} % ({100 * rate['low']:.0f}-{100 * rate['high']:.0f})"


def our_row(evaluation: Evaluation) -> MethodRow | None:
    """What controllers do by default, if it was measured, at the smallest m."""
    preference = [DEFAULT, *methods_of("ours")]
    rows = [row for row in evaluation.methods if row.method in preference and HEADLINE in row.rates]
    return min(rows, key=lambda row: (preference.index(row.method), row.replan), default=None)


def strongest(evaluation: Evaluation, role: Role) -> MethodRow | None:
    """At the m that suits it best."""
    rows = [row for row in evaluation.methods if row.role == role and HEADLINE in row.rates]
    return max(rows, key=lambda row: row.rates[HEADLINE]["value"], default=None)


def card(evaluation: Evaluation) -> Card | None:
    ours = our_row(evaluation)
    if ours is None:
        return None
    others = [row for role in CONTENDERS if (row := strongest(evaluation, role)) is not None]
    return Card([ours, *others], _speed(ours, others[0]) if others else "")


def headline(evaluations: Sequence[Evaluation]) -> list[str]:
    """The first sentence says what was measured and who reached more goals; the others are about contenders that ran
    on some of the tasks only."""
    measured = {number: row for number, one in enumerate(evaluations) if (row := our_row(one)) is not None}
    if not measured:
        return [_without_ours(evaluations)]
    ours = _own_name(list(measured.values()))
    text = f"On {_tasks(evaluations, measured)}, {ours} reached {_goals(list(measured.values()))}"
    apart = []
    for role, several in CONTENDERS.items():
        rivals = {n: row for n in measured if (row := strongest(evaluations[n], role)) is not None}
        if not rivals:
            continue
        mine, theirs = [measured[n] for n in rivals], list(rivals.values())
        titles = {METHODS.get(row.method).title for row in theirs}
        name = titles.pop() if len(titles) == 1 else several
        clause = f"{name}{_compute(mine, theirs)} {_result(mine, theirs)}"
        if len(rivals) == len(measured):
            text += f"; {clause}"
        else:
            apart.append(f"On {_tasks(evaluations, rivals)}, {clause}; {ours} reached {_goals(mine)}.")
    return [f"{text}.", *apart]


def comparisons(evaluation: Evaluation) -> list[Comparison]:
    """Of every method with the reference, on the trials that both ran."""
    rows = {(row.method, row.replan): row for row in evaluation.methods}
    return [
        _comparison(row, rows[evaluation.reference, m], difference)
        for row in evaluation.methods
        for m, difference in row.differences.items()
        if (evaluation.reference, m) in rows
    ]


def _comparison(row: MethodRow, reference: MethodRow, difference: dict[str, Any]) -> Comparison:
    trials = min(row.trials, reference.trials)  # each ran the first so many
    gain = difference["only_this"] - difference["only_reference"]
    if row.trials <= reference.trials:
        mine = row.rates[HEADLINE]["successes"]
        theirs = mine - gain
    else:
        theirs = reference.rates[HEADLINE]["successes"]
        mine = theirs + gain
    sides = [(reference, theirs), (row, mine)]
    if row.role == "ours" != reference.role:
        sides.reverse()
    (one, first), (other, second) = sides
    chance = f"; {show_p(difference['p_value'])}" + (", so it may be chance" if difference["p_value"] >= 0.05 else "")
    if not difference["only_this"] and not difference["only_reference"]:
        text = f"{_named(one)} and {_named(other)} reached the same {first} of {trials}."
    elif first == second:
        text = f"{_named(one)} and {_named(other)} each reached {first} of {trials}, not all on the same trials."
    else:
        text = f"{_named(one)} reached {first} of {trials} where {_named(other)} reached {second}{chance}."
    sign = 1 if one is row else -1
    low, high = sorted(sign * 100 * difference[end] + 0.0 for end in ("low", "high"))  # + 0.0: no minus before a zero
    points = f"{sign * 100 * difference['difference'] + 0.0:+.1f} ({low:+.1f} to {high:+.1f})"
    return Comparison(text, points, bool({one.role, other.role} & {"floor", "ceiling"}))


def show_p(value: float) -> str:
    if value >= 0.001:
        return f"p = {value:.2g}"
    return f"p < 1e-{math.floor(-math.log10(max(value, 1e-300)))}"


def _named(row: MethodRow) -> str:
    return f"{row.title} ({row.pace})"


def _own_name(rows: Sequence[MethodRow]) -> str:
    """Our methods share a name that is shorter than their titles."""
    properties = METHODS.get(rows[0].method).properties
    return properties.group if properties else rows[0].title


def _tasks(evaluations: Sequence[Evaluation], chosen: dict[int, MethodRow]) -> str:
    titles = list(dict.fromkeys(get_task(evaluations[n].task).title for n in chosen))
    return titles[0] if len(titles) == 1 else f"{len(titles)} tasks"


def _total(rows: Sequence[MethodRow]) -> tuple[int, int]:
    rates = [row.rates[HEADLINE] for row in rows]
    return sum(rate["successes"] for rate in rates), sum(rate["trials"] for rate in rates)


def _goals(rows: Sequence[MethodRow]) -> str:
    reached, trials = _total(rows)
    share = f" ({100 * reached / trials:.3g} %)" if trials >= FEW else ""
    return f"{reached} of {trials} goals{share}"


def _result(mine: Sequence[MethodRow], theirs: Sequence[MethodRow]) -> str:
    (reached, trials), (other, attempts) = _total(mine), _total(theirs)
    count = f"{other}" if trials == attempts else f"{other} of {attempts}"
    count += f" ({100 * other / attempts:.3g} %)" if attempts >= FEW else ""
    if other * trials > reached * attempts:
        return f"did better and reached {count}"
    if (other, attempts) == (reached, trials):
        return "reached as many"
    return f"reached {count}"


def _compute(mine: Sequence[MethodRow], theirs: Sequence[MethodRow]) -> str:
    ours, others = (sum(row.costs["transitions"] for row in rows) for rows in (mine, theirs))
    if not ours or not others or others / ours < 1.5:
        return ""
    return f", with {times(others / ours)} times the compute per decision,"


def times(ratio: float) -> str:
    """Two digits: 1,800 or 1.5."""
    rounded = float(f"{ratio:.2g}")
    return f"{rounded:,.0f}" if rounded >= 10 else f"{rounded:g}"


def _speed(ours: MethodRow, rival: MethodRow) -> str:
    """Of a decision."""
    if not ours.decision_ms or not rival.decision_ms:
        return ""
    ratio = rival.decision_ms / ours.decision_ms
    if ratio >= 1.1:
        return f"A decision is {times(ratio)} times faster than with {rival.title}."
    if ratio <= 1 / 1.1:
        return f"A decision is {times(1 / ratio)} times slower than with {rival.title}."
    return f"A decision takes as long as with {rival.title}."


def _without_ours(evaluations: Sequence[Evaluation]) -> str:
    groups: dict[str, dict[int, MethodRow]] = {}  # by label, then by evaluation
    for number, evaluation in enumerate(evaluations):
        for row in evaluation.methods:
            if HEADLINE in row.rates:
                groups.setdefault(row.label, {})[number] = row
    if not groups:
        return "Planners and their world models."
    totals = {label: _total(list(rows.values())) for label, rows in groups.items()}
    shares = {label: reached / trials for label, (reached, trials) in totals.items()}
    best = max(shares, key=lambda label: shares[label])
    rows = list(groups[best].values())
    beaten = [share < shares[best] for label, share in shares.items() if label != best]
    more = ", more than any other method here" if beaten and all(beaten) else ""
    return f"On {_tasks(evaluations, groups[best])}, {rows[0].title} reached {_goals(rows)}{more}."
