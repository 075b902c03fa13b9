# Instruction-set flags of the arithmetic loops; included by ../CMakeLists.txt. Files of another
# processor are empty there and get no flags.
if(CMAKE_SYSTEM_PROCESSOR MATCHES "^(x86_64|AMD64|amd64)$")
  set_source_files_properties(${CMAKE_CURRENT_LIST_DIR}/arithmetic_avx2.cc PROPERTIES
    COMPILE_OPTIONS "-mavx2;-mfma")
  set(cox_limits_avx512 -mavx512f -mavx512bw -mavx512vl -mavx512vnni -mavx512bf16)
  if(CMAKE_CXX_COMPILER_ID STREQUAL "GNU")
    # g++ 12 warns inside its own AVX-512 headers ('__Y' is used uninitialized).
    list(APPEND cox_limits_avx512 -Wno-uninitialized -Wno-maybe-uninitialized)
  endif()
  set_source_files_properties(${CMAKE_CURRENT_LIST_DIR}/arithmetic_avx512.cc PROPERTIES
    COMPILE_OPTIONS "${cox_limits_avx512}")
endif()
if(CMAKE_SYSTEM_PROCESSOR MATCHES "^(aarch64|arm64|ARM64)$")
  set_source_files_properties(${CMAKE_CURRENT_LIST_DIR}/arithmetic_neon.cc PROPERTIES
    COMPILE_OPTIONS "-march=armv8.2-a+dotprod+i8mm+bf16")
endif()
