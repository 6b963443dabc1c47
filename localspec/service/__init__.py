"""The daemon as a service of the user's: started at login, and again when it crashes."""
