"""One file a source: facts of a data set and a pure conversion of its rows."""
