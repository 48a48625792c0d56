"""Why a planner works or does not: tables from held-out problems and from the environment."""
