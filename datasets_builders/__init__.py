"""Builders that turn public data sets into rows of one schema, ready for TRL's trainers.

The package may use `reward_funcs` to check its own golds and never imports `trl_ext`: a generator (model, fast
rollout, server) is passed in by the caller.
"""
