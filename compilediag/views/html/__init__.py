"""Reports as one offline HTML file each, to be shared and looked at."""
