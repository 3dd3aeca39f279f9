"""One module a command of `trl-ext`, each with `main(argv: list[str]) -> int`."""
