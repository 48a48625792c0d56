"""The command line: a table from verbs to functions."""

from __future__ import annotations

import sys
from collections.abc import Callable, Mapping
from typing import Any

import tyro
from rich.table import Table

from .. import __version__
from .progress import console, errors

Verb = Callable[..., Any]
Verbs = Mapping[str, Any]  # a verb's function, or a table of its own


def verbs() -> Verbs:
    """Imported here, not at the top: `leplanner --version` should not wait for torch."""
    from . import (
        ablate,
        baselines,
        bench,
        cache,
        collect,
        decoder,
        demo,
        density,
        diagnose,
        doctor,
        evaluate,
        export,
        practice,
        report,
        run,
        train,
        world,
        zoo,
    )

    return {
        "demo": demo.demo,
        "zoo": zoo.zoo,
        "run": run.run,
        "doctor": doctor.doctor,
        "collect": collect.collect,
        "world": world.VERBS,
        "cache": cache.cache,
        "density": density.density,
        "train": train.train,
        "practice": practice.practice,
        "baselines": baselines.baselines,
        "evaluate": evaluate.evaluate,
        "decoder": decoder.decoder,
        "diagnose": diagnose.diagnose,
        "ablate": ablate.ablate,
        "report": report.report,
        "export": export.export,
        "bench": bench.VERBS,
    }


def _first_line(verb: Verb) -> str:
    return (verb.__doc__ or "").strip().splitlines()[0]


def _show_help(table: Verbs, prefix: str) -> None:
    console.print(
        f"usage: {prefix} VERB [options]   ({prefix} VERB --help explains a verb and shows an example)\n", markup=False
    )
    shown = Table(box=None, show_header=False, pad_edge=False)
    for name, verb in table.items():
        if isinstance(verb, Mapping):
            for inner, function in verb.items():
                shown.add_row(f"  {name} {inner}", _first_line(function))
        else:
            shown.add_row(f"  {name}", _first_line(verb))
    console.print(shown)


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
        result = tyro.cli(chosen, prog=prefix, args=words)
    except (ValueError, ImportError, FloatingPointError, RuntimeError, OSError) as error:
        if isinstance(error, RuntimeError) and not str(error).startswith("MuJoCo"):
            raise  # ours to mend, so show where
        errors.print(f"error: {error}", style="red", markup=False, highlight=False, soft_wrap=True)
        return 1
    except KeyboardInterrupt:
        errors.print("stopped; what was finished is kept.")
        return 130
    return result if isinstance(result, int) else 0
