# Cross build for 64-bit ARM Linux (Debian: g++-aarch64-linux-gnu, qemu-user-static):
#   cmake -S native -B DIR -G Ninja -DCMAKE_TOOLCHAIN_FILE=toolchains/aarch64.cmake [-DCOX_QEMU_CPU=cortex-a72]
# Tests run under qemu. Its `max` CPU has the dot-product instructions, cortex-a72 has not: run both.
set(CMAKE_SYSTEM_NAME Linux)
set(CMAKE_SYSTEM_PROCESSOR aarch64)
set(CMAKE_CXX_COMPILER aarch64-linux-gnu-g++)
set(CMAKE_FIND_ROOT_PATH /usr/aarch64-linux-gnu)
set(CMAKE_FIND_ROOT_PATH_MODE_PROGRAM NEVER)
set(CMAKE_FIND_ROOT_PATH_MODE_LIBRARY ONLY)
set(CMAKE_FIND_ROOT_PATH_MODE_INCLUDE ONLY)
set(COX_QEMU_CPU "max" CACHE STRING "the CPU that qemu plays")
set(CMAKE_CROSSCOMPILING_EMULATOR qemu-aarch64-static -cpu ${COX_QEMU_CPU} -L /usr/aarch64-linux-gnu)
