"""Chats: their turns, their messages and their file."""
