"""Jobs in worker processes: results as they come, errors and deaths reported, the same plugins known."""

from __future__ import annotations

import math
import os

import pytest

from leplanner.core import registry
from leplanner.execution.executor import EXECUTORS, ExecutorKind, make_executor
from leplanner.execution.processes import Processes
from leplanner.tasks import TASKS, find_task, get_task

PLUGIN = """
import numpy as np
from leplanner.tasks import Task

def simulator(visuals):
    raise NotImplementedError

def behavior(sim, rng):
    raise NotImplementedError

def success(state, goal):
    return np.abs(state - goal).max(axis=-1) < 0.1

TASK = Task("dot", 1, 1, simulator, behavior, success)
"""


def test_every_result_is_yielded_once():
    assert sorted(Processes(2).run(math.factorial, list(range(6)))) == [1, 1, 2, 6, 24, 120]


def test_without_jobs_no_process_is_started():
    assert list(Processes(2).run(os._exit, [])) == []


def test_an_error_of_a_job_is_the_callers():
    with pytest.raises(ValueError, match=r"invalid literal for int\(\) with base 10: 'x'"):
        list(Processes(1).run(int, ["x"]))


def test_a_dead_worker_is_reported():
    with pytest.raises(ValueError, match="A worker process died; 1 ran at once"):
        list(Processes(1).run(os._exit, [3]))


def test_workers_know_what_was_named_on_the_command_line(monkeypatch, tmp_path):
    (tmp_path / "task_of_a_test.py").write_text(PLUGIN)
    monkeypatch.syspath_prepend(tmp_path)
    monkeypatch.setattr(registry, "_plugins", registry._plugins.copy())
    monkeypatch.setattr(TASKS, "_items", dict(TASKS._items))
    task = find_task("task_of_a_test:TASK")
    assert list(Processes(1).run(get_task, ["dot"])) == [task]


def test_as_many_processes_as_requested_and_at_least_one():
    assert Processes(3).concurrency == 3
    assert Processes().concurrency == os.cpu_count()
    with pytest.raises(ValueError, match="--workers must be at least 1; got 0"):
        Processes(0)


def test_executors_are_made_by_name(monkeypatch):
    monkeypatch.setattr(EXECUTORS, "_items", dict(EXECUTORS._items))
    EXECUTORS.register(ExecutorKind("here", lambda workers: ("here", workers)))
    assert make_executor("here", 5) == ("here", 5)
    assert isinstance(make_executor(workers=2), Processes)
    with pytest.raises(ValueError, match=r"Unknown executor 'cluster'\. Known: processes, inline, here"):
        make_executor("cluster")
