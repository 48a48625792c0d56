"""PLDM: LeWM's network, trained with variance-covariance regularization and inverse dynamics."""
