"""Model processes: started, lent to requests, watched and ended."""
