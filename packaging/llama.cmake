# Read after cmake's project(), by CMAKE_PROJECT_INCLUDE (.cargo/config.toml): what of llama.cpp is not built.
#
# Its library for command lines, servers and templates. Nothing here calls it, but llama-cpp-2 asks for all of
# llama-cpp-sys-2. It is a third of llama.cpp's sources, and the slowest one to compile.
set(LLAMA_BUILD_COMMON OFF CACHE BOOL "" FORCE)
