"""MLX models, through mlx-lm."""
