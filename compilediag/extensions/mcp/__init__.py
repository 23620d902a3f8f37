"""A server of the Model Context Protocol, for agents: the commands of the core as tools."""
