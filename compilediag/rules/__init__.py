"""Rules by family: what each recognises, what it says, and what may be tried."""
