"""The daemon as a service of the user: started at login, and again after a crash."""
