"""Executions of two states of a program, for the certificate of the change between them."""
