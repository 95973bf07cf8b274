"""The papers' tables and figures beside ours, one file for each.

`target` says what a target is and what comes out of it, `verdicts` how a claim is judged, `picture` how figures look.
`TARGETS` in `all` names them all.
"""
