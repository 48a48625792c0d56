"""The command line: a table from verbs to what they do. A verb parses, calls one library function, prints."""

from __future__ import annotations

import dataclasses
import sys
from collections.abc import Mapping
from typing import Any

import tyro
from rich.table import Table

from .. import __version__
from .progress import console, errors

Verbs = Mapping[str, Any]  # a function, a dataclass of options with `default` and `run`, or a table of verbs


def verbs() -> Verbs:
    """Imported here, not at the top: `leplanner --version` should not wait for torch."""
    from . import ablate, bench, demo, diagnose, doctor, evaluate, export, play, report, run, stages, world, zoo

    return {
        "demo": demo.demo,
        "play": play.play,
        "zoo": zoo.zoo,
        "run": run.Run,
        "doctor": doctor.doctor,
        "collect": stages.Collect,
        "world": world.VERBS,
        "cache": stages.Cache,
        "density": stages.Density,
        "train": stages.Train,
        "baselines": stages.Baselines,
        "evaluate": evaluate.Evaluate,
        "decoder": stages.Decoder,
        "diagnose": diagnose.Diagnose,
        "ablate": ablate.Ablate,
        "report": report.report,
        "export": export.export,
        "bench": bench.VERBS,
    }


def _first_paragraph(verb: Any) -> str:
    return " ".join((verb.__doc__ or "").strip().split("\n\n")[0].split())


def _show_help(table: Verbs, prefix: str) -> None:
    console.print(
        f"usage: {prefix} VERB [options]   ({prefix} VERB --help explains a verb and shows an example)\n", markup=False
    )
    shown = Table(box=None, show_header=False, pad_edge=False)
    for name, verb in table.items():
        if isinstance(verb, Mapping):
            for inner, function in verb.items():
                shown.add_row(f"  {name} {inner}", _first_paragraph(function))
        else:
            shown.add_row(f"  {name}", _first_paragraph(verb))
    console.print(shown)


def _call(verb: Any, prefix: str, words: list[str]) -> Any:
    if not dataclasses.is_dataclass(verb):
        return tyro.cli(verb, prog=prefix, args=words)
    from .options import preselect

    default = verb.default(preselect(words), words)  # type: ignore[attr-defined]
    config = (tyro.conf.OmitSubcommandPrefixes, tyro.conf.AvoidSubcommands)
    return tyro.cli(type(default), prog=prefix, args=words, default=default, config=config).run()


def main(arguments: list[str] | None = None) -> int:
    words = list(sys.argv[1:] if arguments is None else arguments)
    if words == ["--version"]:
        print(__version__)
        return 0
    chosen: Any = verbs()
    prefix = "leplanner"
    while isinstance(chosen, Mapping):
        if not words or words[0] in ("-h", "--help"):
            _show_help(chosen, prefix)
            return 0
        name = words.pop(0)
        if name not in chosen:
            errors.print(
                f"error: {prefix} has no verb {name!r}; it has {', '.join(chosen)}.", style="red", markup=False
            )
            return 2
        chosen, prefix = chosen[name], f"{prefix} {name}"
    try:
        result = _call(chosen, prefix, words)
    except (ValueError, ImportError, FloatingPointError, RuntimeError, OSError) as error:
        if isinstance(error, RuntimeError) and not str(error).startswith("MuJoCo"):
            raise  # ours to mend, so show where
        errors.print(f"error: {error}", style="red", markup=False, highlight=False, soft_wrap=True)
        return 1
    except KeyboardInterrupt:
        errors.print("stopped; what was finished is kept.")
        return 130
    return result if isinstance(result, int) else 0
