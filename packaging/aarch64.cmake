# Read after cmake's project(), by CMAKE_PROJECT_INCLUDE in dist.sh: llama-cpp-sys-2 compiles for armv8-a, which has no
# dot products of bytes. Every 64-bit ARM server since 2018 has them.
set(GGML_CPU_ARM_ARCH armv8.2-a+dotprod+fp16 CACHE STRING "" FORCE)
include(${CMAKE_CURRENT_LIST_DIR}/llama.cmake)
