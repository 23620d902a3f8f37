"""Rules about graph breaks, and the reader of torch's reports of them."""
