"""The core's rules once more, written plainly, and the judge that compares: `judged` stands between the two."""
