"""compilediag: why did torch.compile compile again, what did it cost, what do I change?"""

__version__ = "0.1.0"
