"""The only place that names what torch keeps private, feature-detected."""
