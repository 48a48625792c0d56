"""The one training loop, its optimizers, loggers and number formats."""
