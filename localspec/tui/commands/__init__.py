"""The commands of the chat, run by slash, palette or key: one module for each subject."""
