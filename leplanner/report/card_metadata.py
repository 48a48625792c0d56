"""The head of a model card that the Hugging Face hub reads: library, tags, and the measured success rates."""

from __future__ import annotations

from ..tasks import get_task
from .tables import Evaluation, metric_title

REPORTED = ("any", "held")  # of all metrics, those that the hub lists


def card_metadata(measured: Evaluation) -> str:
    """YAML between two lines of dashes. The digest of the trials is the revision of the dataset that results are of."""
    from huggingface_hub import EvalResult, ModelCardData

    task = get_task(measured.task)
    results = [
        EvalResult(
            task_type="robotics",
            dataset_type=task.env_id or task.name,
            dataset_name=f"{task.title}: {measured.title}",
            dataset_revision=measured.manifest,
            metric_type="success_rate",
            metric_name=f"success {metric_title(name)}, {row.title}, {row.pace}",
            metric_value=round(row.rates[name]["value"], 4),
        )
        for row in measured.methods
        if row.role == "ours"
        for name in REPORTED
        if name in row.rates
    ]
    data = ModelCardData(
        model_name=f"LePlanner for {task.title}",
        license="mit",
        library_name="leplanner",
        pipeline_tag="robotics",
        tags=["world-model", "planning", "robot-learning", task.name],
        eval_results=results,
    )
    return f"---\n{data.to_yaml()}\n---\n"
