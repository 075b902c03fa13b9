# Instruction-set flags of the kernel files; included by ../CMakeLists.txt. Every file is compiled for
# every processor, but the files of another processor are empty there and get no flags.
file(GLOB cox_avx2_sources ${CMAKE_CURRENT_LIST_DIR}/avx2/*.cc)
file(GLOB cox_avx512_sources ${CMAKE_CURRENT_LIST_DIR}/avx512/*.cc)
if(CMAKE_SYSTEM_PROCESSOR MATCHES "^(x86_64|AMD64|amd64)$")
  set_source_files_properties(${cox_avx2_sources} PROPERTIES
    COMPILE_OPTIONS "-mavx2;-mfma;-mf16c")
  set(cox_avx512_options -mavx512f -mavx512bw -mavx512vl -mavx512dq -mavx512vnni -mfma -mf16c
      -mprefer-vector-width=512)
  if(CMAKE_CXX_COMPILER_ID STREQUAL "GNU")
    # g++ 12 warns inside its own AVX-512 headers ('__Y' is used uninitialized).
    list(APPEND cox_avx512_options -Wno-uninitialized -Wno-maybe-uninitialized)
  endif()
  set_source_files_properties(${cox_avx512_sources} PROPERTIES
    COMPILE_OPTIONS "${cox_avx512_options}")
endif()
if(CMAKE_SYSTEM_PROCESSOR MATCHES "^(aarch64|arm64|ARM64)$")
  set_source_files_properties(${CMAKE_CURRENT_LIST_DIR}/neon/a8_dotprod.cc PROPERTIES
    COMPILE_OPTIONS "-march=armv8.2-a+dotprod")
endif()
