"""The command line: a table of verbs. A verb parses, calls one library function, prints."""

from __future__ import annotations

import ast
import importlib
import sys
from collections.abc import Iterable
from pathlib import Path
from typing import Any

from rich.table import Table

from .. import __version__
from ..core.registry import match_name
from .progress import console, errors

# where each verb is, as module:name of this folder: a dataclass of options with `run`, and with `default` where
# defaults depend on other words. Imported when it is called: help does not wait for torch
GROUPS = {
    "Look": {"demo": "demo:Demo", "play": "play:Play", "zoo": "zoo:Zoo", "doctor": "doctor:Doctor"},
    "Make": {
        "run": "run:Run",
        "collect": "stages:Collect",
        "world train": "world:WorldTrain",
        "world finetune": "world:WorldFinetune",
        "world import": "world:WorldImport",
        "cache": "stages:Cache",
        "density": "stages:Density",
        "train": "stages:Train",
        "baselines": "stages:Baselines",
        "decoder": "stages:Decoder",
    },
    "Measure": {
        "evaluate": "evaluate:Evaluate",
        "report": "report:Report",
        "diagnose": "diagnose:Diagnose",
        "ablate": "ablate:Ablate",
        "compare": "compare:Compare",
        "reproduce": "reproduce:Reproduce",
        "world probe": "world:WorldProbe",
        "bench plan": "bench:BenchPlan",
        "bench world": "bench:BenchWorld",
        "bench train": "bench:BenchTrain",
    },
    "Use": {"export": "export:Export", "world export": "world:WorldExport"},
}
VERBS = {verb: address for group in GROUPS.values() for verb, address in group.items()}
SHELLS = ("bash", "zsh", "fish")


def load_verb(verb: str) -> Any:
    module, _, name = VERBS[verb].partition(":")
    return getattr(importlib.import_module(f".{module}", __package__), name)


def describe(verb: str) -> str:
    """The first paragraph of its docstring, read without importing it."""
    module, _, name = VERBS[verb].partition(":")
    tree = ast.parse((Path(__file__).parent / f"{module}.py").read_text(encoding="utf-8"))
    (node,) = (n for n in tree.body if isinstance(n, ast.ClassDef) and n.name == name)
    return _paragraphs(ast.get_docstring(node))[0]


def _paragraphs(doc: str | None) -> list[str]:
    return [" ".join(paragraph.split()) for paragraph in (doc or "").split("\n\n")]


def _show_help(verbs: Iterable[str], prefix: str) -> None:
    chosen = set(verbs)
    console.print(f"usage: {prefix} VERB [options]   ({prefix} VERB --help explains a verb and shows an example)")
    shown = Table(box=None, show_header=False, pad_edge=False)
    for title, group in GROUPS.items():
        inside = [verb for verb in group if verb in chosen]
        if inside:
            shown.add_row()
            shown.add_row(title)
        for verb in inside:
            shown.add_row(f"  {verb}", describe(verb))
    console.print(shown)
    if prefix == "leplanner":
        console.print(f"\n--version; --print-completion {{{','.join(SHELLS)}}} for completion of verbs and options")


def _find_verb(words: list[str]) -> tuple[str | None, list[str]]:
    """The verb of one or two words, and the words after it; none where help about several was shown instead."""
    if not words or words[0] in ("-h", "--help"):
        _show_help(VERBS, "leplanner")
        return None, []
    first = match_name("verb", words[0], dict.fromkeys(verb.split()[0] for verb in VERBS))
    inner = {verb.split()[1]: verb for verb in VERBS if verb.startswith(f"{first} ")}
    if not inner:
        return first, words[1:]
    if len(words) == 1 or words[1] in ("-h", "--help"):
        _show_help(inner.values(), f"leplanner {first}")
        return None, []
    return inner[match_name(f"{first} verb", words[1], inner)], words[2:]


def parse(verb: str, words: list[str]) -> Any:
    """The options of a verb."""
    import tyro

    from .options import asks_for_help

    loaded, options = load_verb(verb), {}
    if hasattr(loaded, "default"):
        default = loaded.default(words)
        loaded, options = type(default), {"default": default}
        if asks_for_help(words):  # tyro leaves out what was typed already
            words = ["--help"]
            if choice := getattr(default, "choice", None):
                about = f"Defaults shown are of {choice.task} at {choice.scale} scale, {choice.recipe} recipe."
                options["description"] = "\n\n".join([*_paragraphs(loaded.__doc__), about])
    config = (tyro.conf.OmitSubcommandPrefixes, tyro.conf.AvoidSubcommands)
    return tyro.cli(loaded, prog=f"leplanner {verb}", args=words, config=config, **options)


def main(arguments: list[str] | None = None) -> int:
    words = list(sys.argv[1:] if arguments is None else arguments)
    if words == ["--version"]:
        print(__version__)
        return 0
    try:
        if words[:1] == ["--print-completion"]:
            from .completion import completion_script

            print(completion_script(match_name("shell", " ".join(words[1:]), SHELLS)))
            return 0
        verb, rest = _find_verb(words)
    except ValueError as error:
        errors.print(f"error: {error}", style="red", soft_wrap=True)
        return 2
    if verb is None:
        return 0
    try:
        result = parse(verb, rest).run()
    except (ValueError, ImportError, FloatingPointError, RuntimeError, OSError) as error:
        if isinstance(error, RuntimeError) and not str(error).startswith("MuJoCo"):
            raise  # ours to mend, so show where
        errors.print(f"error: {error}", style="red", soft_wrap=True)
        return 1
    except KeyboardInterrupt:
        errors.print("stopped; what was finished is kept.")
        return 130
    return result if isinstance(result, int) else 0
