"""What is asked in front of the chat: each ends with an answer, or with None."""
