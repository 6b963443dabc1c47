"""The HTTP server: OpenAI's, llama.cpp's and Ollama's dialects, translated to the daemon's wire."""
