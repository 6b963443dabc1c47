"""Tool calls and thoughts in a chat's text: how families of models mark them, as their templates show."""
