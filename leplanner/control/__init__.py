"""Plans executed step by step: history, goals, replanning."""
