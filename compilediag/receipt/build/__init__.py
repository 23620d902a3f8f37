"""A receipt built from a Timeline and its Diagnosis, one module a section. Pure."""
