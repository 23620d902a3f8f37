"""Small programs that compile again for the cause of a finding, written from the receipt alone."""
