# Of llama.cpp only the libraries: the common code of its own programs is not loaded.
set(LLAMA_BUILD_COMMON OFF)
