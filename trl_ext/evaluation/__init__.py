"""Evaluation and plots of a run."""
