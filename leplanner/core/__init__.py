"""What crosses borders: problems and plans, what a planner needs of a world, actions, and one small registry."""
