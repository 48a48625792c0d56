"""What tests of evaluations share."""

from __future__ import annotations

import pytest

from leplanner.cli import options
from leplanner.evaluation import runner


class InProcess:
    """One job after another, here: it knows what this process registered."""

    concurrency = 1

    def run(self, work, jobs):
        for job in jobs:
            yield work(job)


@pytest.fixture
def in_process(monkeypatch):
    monkeypatch.setattr(options, "make_executor", lambda workers: InProcess())
    monkeypatch.setattr(runner, "_worker", worker := {})
    yield InProcess()
    if worker:
        worker["sim"].close()
