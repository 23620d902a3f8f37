"""The diagnosis: from a Timeline to causes, findings and a verdict. Pure."""
