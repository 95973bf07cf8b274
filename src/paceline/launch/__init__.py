"""Starting the nodes of a run as processes. `local` does it for a program, `run` for a script, `cli` for a person."""
