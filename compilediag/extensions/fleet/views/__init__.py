"""Screens and the page of many receipts."""
