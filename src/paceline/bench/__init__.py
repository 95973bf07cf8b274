"""What the figures in README and docs come from: `paceline bench`.

Times on a shared machine move by half from hour to hour. So whatever is compared is measured in one run, taking turns,
as the median of several repeats, and a limit is measured beside it.
"""
