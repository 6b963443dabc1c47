"""What a person can have done, by slash, by the palette or by a key: one module for each kind of thing."""
