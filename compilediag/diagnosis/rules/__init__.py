"""Rules: one module a family; a rule is `(Timeline) -> Iterable[Finding]` with a stable code."""
