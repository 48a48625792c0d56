"""What the paper prints, to be shown beside what is measured here: (what, printed) by part and task."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class Printed:
    what: str
    value: str
    where: str  # in the paper


EVERY_TASK = ""
SCOREBOARD = "Table PushT scoreboard"

_SUCCESS = {"tworoom": (100, 100), "pusht": (94, 88), "reacher": (100, 100), "cube": (82, 92)}  # m = 1, m = 5
_FASTER = {"tworoom": (49, 17), "pusht": (36, 7), "reacher": (18, 4), "cube": (9, 3)}
_DATASETS = {  # episodes, frames, numbers in an action, numbers in a block
    "pusht": (18_685, 2_336_736, 2, 10),
    "reacher": (10_000, 2_010_000, 2, 10),
    "tworoom": (10_000, 920_809, 2, 10),
    "cube": (10_000, 2_010_000, 5, 25),
}


def _by_task() -> dict[tuple[str, str], tuple[Printed, ...]]:
    values: dict[tuple[str, str], tuple[Printed, ...]] = {}
    for task, (short, whole) in _SUCCESS.items():
        values["success", task] = (
            Printed("LePlanner, m = 1", f"{short}%", "Section 4.1"),
            Printed("LePlanner, m = 5", f"{whole}%", "Section 4.1"),
        )
    for task, (short, whole) in _FASTER.items():
        values["wall-clock", task] = (
            Printed("CEM's seconds an episode over LePlanner's, m = 1", f"{short}x", "Figure Wall-clock"),
            Printed("CEM's seconds an episode over LePlanner's, m = 5", f"{whole}x", "Figure Wall-clock"),
        )
    for task, (episodes, frames, size, block) in _DATASETS.items():
        values["inputs", task] = (
            Printed("episodes", f"{episodes:,}", "Table Offline datasets"),
            Printed("frames", f"{frames:,}", "Table Offline datasets"),
            Printed("numbers in an action", str(size), "Table Offline datasets"),
            Printed("numbers in a block", str(block), "Table Offline datasets"),
        )
    goals = ("25.9%", "21.1%", "18.9%", "17.4%", "16.7%")  # printed without a task; they follow from PushT's lengths
    values["inputs", "pusht"] += (
        Printed("c95", "1.5306", "Appendix B.2"),
        *(Printed(f"q = {q}", share, "Appendix A") for q, share in enumerate(goals, start=1)),
    )
    return values


PRINTED: dict[tuple[str, str], tuple[Printed, ...]] = {
    **_by_task(),
    ("inputs", EVERY_TASK): (
        Printed("planner parameters", "6.8 M", "Table The full stack"),
        Printed("mixture components", "16", "Table The full stack"),
    ),
    ("claim", "pusht"): (
        Printed("random, m = 1", "2%", SCOREBOARD),
        Printed("cem, m = 1", "34%", SCOREBOARD),
        Printed("cem, m = 5", "90%", SCOREBOARD),
        Printed("fixed-terminal path, m = 1", "52%", SCOREBOARD),
        Printed("fixed-terminal path, m = 5", "88%", SCOREBOARD),
        Printed("arrival-hold, m = 1", "94%", SCOREBOARD),
        Printed("arrival-hold, m = 5", "88%", SCOREBOARD),
        Printed("fixed-terminal, m = 1", "18%", "Appendix C.5"),
        Printed("fixed-terminal path no support, m = 1", "50%", "Appendix C.5"),
        Printed("fixed-terminal path, off support", "18.7%", "Appendix C.5"),
        Printed("fixed-terminal path no support, off support", "65.2%", "Appendix C.5"),
    ),
    ("arrival", "pusht"): (
        Printed("fixed-terminal path: minimum of every curve", "block 5", "Figure Arrival profiles"),
        Printed("arrival-hold: minimum of the curve of q", "block q", "Figure Arrival profiles"),
        Printed("hold 0: final distance over the minimum", "1.9 to 5.1", "Appendix C.5"),
        Printed("arrival-hold: final distance over the minimum", "1.0 to 3.1", "Appendix C.5"),
    ),
    ("loop", "pusht"): (
        Printed("fixed-terminal path: c", "0.579", "Appendix C.3"),
        Printed("fixed-terminal path: b", "0.041", "Appendix C.3"),
        Printed("fixed-terminal path: D*", "0.097", "Appendix C.3, from c and b"),
        Printed("arrival-hold: c", "0.392", "Appendix C.3"),
        Printed("arrival-hold: b", "0.024", "Appendix C.3"),
        Printed("arrival-hold: D*", "0.039", "Appendix C.3, from c and b"),
    ),
    ("refinement", "pusht"): (
        Printed("share of the support penalty in the loss", "1.0%", "Appendix B.4"),
        Printed("terminal distance of k = 0 over that of k = 3", "3.9", "Table Refinement"),
        Printed("arrival distance over terminal distance, k = 3", "10.1", "Table Refinement"),
        Printed("k with the lowest terminal distance, up to 10", "5", "Figure Closed loop (b)"),
        Printed("step sizes", "0.550, 0.451, 0.312", "Table Refinement"),
        Printed("terminal distance, k = 0 to 3", "0.0581, 0.0264, 0.0171, 0.0149", "Table Refinement"),
        Printed("arrival distance, k = 0 to 3", "0.2016, 0.1656, 0.1543, 0.1500", "Table Refinement"),
        Printed("distance where the plan ends", "0.0211", "Appendix B.4"),
        Printed("distance after the data's block", "0.3930", "Appendix B.4"),
        Printed("distance at the start", "0.7176", "Appendix B.4"),
        Printed("first block beside the data's: mean cosine", "0.552", "Appendix B.4"),
        Printed("first block beside the data's: median cosine", "0.673", "Appendix B.4"),
        Printed("first block beside the data's: mean absolute difference", "0.605", "Appendix B.4"),
        Printed("mean absolute value of the data's block", "0.683", "Appendix B.4"),
        Printed("plan ends nearer than the data's block does", "99.6%", "Appendix B.4"),
    ),
    ("draws", "pusht"): (
        Printed("LePlanner, m = 1: the draw that the paper reports first", "98%", "Abstract; Appendix A: draw 45"),
        Printed("LePlanner, m = 5: the draw that the paper reports first", "92%", "Appendix A: draw 45"),
        Printed("LePlanner, m = 1: mean of 11 draws", "94.5%", "Appendix A"),
        Printed("LePlanner, m = 1: range", "88 to 100%", "Appendix A"),
        Printed("LePlanner, m = 5: mean of 11 draws", "87.5%", "Appendix A"),
        Printed("LePlanner, m = 5: range", "78 to 96%", "Appendix A"),
    ),
    ("symptom", "pusht"): (
        Printed("mean absolute value of the plan's blocks", "0.703, 0.676, 0.585, 0.471, 0.484", "Appendix C.1"),
        Printed("budget 50, m = 1", "50%", "Appendix C.1"),
        Printed("budget 100, m = 1", "48%", "Appendix C.1"),
        Printed("budget 200, m = 1", "50%", "Appendix C.1"),
    ),
    ("pictures", "tworoom"): (
        Printed("mean frame's MSE over the decoder's", "324", "Table Decoder fidelity"),
        Printed("PSNR", "54.8 dB", "Appendix D.1"),
        Printed("SSIM", "0.9991", "Appendix D.1"),
    ),
    ("pictures", "pusht"): (
        Printed("mean frame's MSE over the decoder's", "3.7 (fresh frames)", "Table Decoder fidelity"),
    ),
}

# Table The old objective is exactly indifferent: distances after blocks 1 to 5 for a goal one block away
DEFERS, ARRIVES = (0.090, 0.053, 0.035, 0.023, 0.014), (0.015, 0.014, 0.014, 0.015, 0.014)


def printed(part: str, task: str) -> tuple[Printed, ...]:
    return PRINTED.get((part, task), ()) + PRINTED.get((part, EVERY_TASK), ())


def ablated(task: str) -> bool:
    """Whether the paper reports variants of the objective on this task."""
    return ("claim", task) in PRINTED
