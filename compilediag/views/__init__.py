"""Views: each is `render(receipt) -> str` and computes nothing."""
