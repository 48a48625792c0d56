"""`leplanner --print-completion SHELL`: a script that completes verbs, and the options that each verb's help shows."""

from __future__ import annotations

import contextlib
import io
import re

from ..tasks import TASKS
from .main import VERBS, parse

BASH = """_leplanner() {
  local words
  case "${COMP_WORDS[1]} ${COMP_WORDS[2]}" in
CASES
    *) words="FIRST";;
  esac
  [ "$COMP_CWORD" -eq 1 ] && words="FIRST"
  COMPREPLY=($(compgen -W "$words" -- "${COMP_WORDS[COMP_CWORD]}"))
}
complete -o default -F _leplanner leplanner"""


def completion_script(shell: str) -> str:
    first = dict.fromkeys(verb.split()[0] for verb in VERBS)
    inner = {name: [verb.split()[1] for verb in VERBS if verb.startswith(f"{name} ")] for name in first}
    options = {verb: options_of(verb) for verb in VERBS}
    if shell == "fish":
        return "\n".join(_fish_lines(list(first), inner, options))
    completed = {verb if " " in verb else f"{verb} ": words for verb, words in options.items()}
    completed |= {f"{name} ": second for name, second in inner.items() if second}
    cases = [f'    "{typed}"*) words="{" ".join(words)}";;' for typed, words in completed.items()]
    script = BASH.replace("CASES", "\n".join(cases)).replace("FIRST", " ".join(first))
    return f"autoload -U bashcompinit && bashcompinit\n{script}" if shell == "zsh" else script


def options_of(verb: str) -> list[str]:
    """What its help lists, and the tasks where it takes one."""
    shown = io.StringIO()
    with contextlib.redirect_stdout(shown), contextlib.suppress(SystemExit):
        parse(verb, ["--help"])
    tasks = TASKS.names() if re.search(r"^[│ ]+TASK ", shown.getvalue(), re.M) else []
    return [*tasks, *dict.fromkeys(re.findall(r"^[│ ]{1,3}(?:-h, )?(--\w[\w.-]*)", shown.getvalue(), re.M))]


def _fish_lines(first: list[str], inner: dict[str, list[str]], options: dict[str, list[str]]) -> list[str]:
    lines = [f"complete -c leplanner -n __fish_use_subcommand -a '{' '.join(first)}'"]
    for name, second in inner.items():
        if second:
            unless = f"not __fish_seen_subcommand_from {' '.join(second)}"
            seen = f"__fish_seen_subcommand_from {name}; and {unless}"
            lines.append(f"complete -c leplanner -n '{seen}' -a '{' '.join(second)}'")
    for verb, words in options.items():
        seen = "; and ".join(f"__fish_seen_subcommand_from {word}" for word in verb.split())
        lines.append(f"complete -c leplanner -n '{seen}' -a '{' '.join(words)}'")
    return lines
