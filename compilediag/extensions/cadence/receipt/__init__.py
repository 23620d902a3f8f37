"""The cadence section of a receipt."""
