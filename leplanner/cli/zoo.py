"""`leplanner zoo`: the bundles that come with the package."""

from __future__ import annotations

from dataclasses import dataclass, field

from ..artifacts import read_json
from ..report.terminal import zoo_table
from ..tasks import get_task
from ..zoo import shipped
from .options import Out, Output


@dataclass(frozen=True)
class Zoo:
    """List the shipped bundles and what they were measured to do. Each has a model card, README.md, in its folder.

    Example: leplanner zoo
    """

    output: Out = field(default_factory=Output)

    def run(self) -> None:
        sizes = {name: sum(path.stat().st_size for path in folder.iterdir()) for name, folder in shipped().items()}
        bundles = {
            name: {"path": folder, "bytes": sizes[name], **read_json(folder / "evaluation.json")}
            for name, folder in shipped().items()
        }
        cards = [f"{get_task(name).title}: {folder / 'README.md'}" for name, folder in shipped().items()]
        self.output.show(bundles, zoo_table(bundles), *cards)
