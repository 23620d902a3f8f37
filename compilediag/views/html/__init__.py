"""One offline HTML file: a report that is shared and looked at."""
