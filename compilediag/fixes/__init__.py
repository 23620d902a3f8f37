"""Changes that may remove a finding, and the certificate that one does."""
