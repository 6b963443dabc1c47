"""The HTTP door: OpenAI's, llama.cpp's and Ollama's dialects, told on the daemon's wire."""
