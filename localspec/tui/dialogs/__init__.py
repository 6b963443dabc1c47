"""Dialogs in front of the chat: each ends with a result, or with None."""
