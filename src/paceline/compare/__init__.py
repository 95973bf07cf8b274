"""One script under several models, with the same seeds, data and slowness: which is good soonest, and at what price."""
