"""Reward functions for TRL: plain callables that a worker process imports in milliseconds.

Importing this package loads the standard library alone; whatever needs torch or math-verify imports it inside the
function that uses it.
"""
