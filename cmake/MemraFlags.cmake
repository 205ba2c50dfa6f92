# Flags of the library, its tests and its benchmarks.

if(MEMRA_SANITIZE)
  set(memra_sanitize_flags -fsanitize=${MEMRA_SANITIZE} -fno-omit-frame-pointer)
  if(MEMRA_SANITIZE MATCHES "undefined")
    list(APPEND memra_sanitize_flags -fno-sanitize-recover=undefined)
  endif()
  foreach(flag IN LISTS memra_sanitize_flags)
    add_compile_options("$<$<COMPILE_LANGUAGE:C,CXX>:${flag}>")
    add_link_options("${flag}")
  endforeach()
endif()

# Instruction sets, for single source files: what they compile to runs only where it was asked for.
# Kernels are loops of fixed length over vectors, which stay in registers only where all are unrolled:
# -O2 alone makes them two times slower.
set(MEMRA_UNROLL_FLAGS $<$<NOT:$<CONFIG:Debug>>:-O3>)
if(CMAKE_SYSTEM_PROCESSOR MATCHES "^(x86_64|AMD64|amd64)$")
  set(MEMRA_X86_64 TRUE)
  set(MEMRA_AVX2_FLAGS ${MEMRA_UNROLL_FLAGS} -mavx2 -mfma -mf16c)
  set(MEMRA_AVX512_VNNI_FLAGS ${MEMRA_UNROLL_FLAGS} -mavx512f -mavx512bw -mavx512dq -mavx512vl -mavx512vnni)
  if(CMAKE_CXX_COMPILER_ID STREQUAL "GNU" AND CMAKE_CXX_COMPILER_VERSION VERSION_LESS 13)
    # GCC 12 warns of its own headers (GCC bug 105593).
    list(APPEND MEMRA_AVX512_VNNI_FLAGS -Wno-uninitialized -Wno-maybe-uninitialized)
  endif()
elseif(CMAKE_SYSTEM_PROCESSOR MATCHES "^(aarch64|arm64)$")
  set(MEMRA_ARM64 TRUE)
endif()

# What every target of this project shares: language level, visibility, warnings.
function(memra_common_flags target)
  target_compile_features(${target} PRIVATE cxx_std_20)
  set_target_properties(
    ${target}
    PROPERTIES CXX_EXTENSIONS OFF
               C_STANDARD 99
               C_EXTENSIONS OFF
               C_VISIBILITY_PRESET hidden
               CXX_VISIBILITY_PRESET hidden
               CUDA_VISIBILITY_PRESET hidden
               VISIBILITY_INLINES_HIDDEN ON)
  # Spelt out, because CMake 3.25 does not know nvcc's C++20.
  target_compile_options(${target} PRIVATE $<$<COMPILE_LANGUAGE:CUDA>:-std=c++20>)
  # No -Wpedantic for nvcc: the host code that it generates is not pedantic.
  target_compile_options(
    ${target} PRIVATE "$<$<COMPILE_LANGUAGE:C,CXX>:-Wall;-Wextra;-Wpedantic>"
                      "$<$<COMPILE_LANGUAGE:CUDA>:-Xcompiler=-Wall,-Wextra>")
  # nvcc looks for unused variables once a target: what one target alone uses is no fault.
  target_compile_options(${target} PRIVATE $<$<COMPILE_LANGUAGE:CUDA>:-diag-suppress=177>)
  if(CMAKE_CXX_COMPILER_ID STREQUAL "GNU" AND CMAKE_CXX_COMPILER_VERSION VERSION_LESS 13)
    # GCC 12 sees overlapping copies in "literal" + std::string (GCC bug 105651).
    target_compile_options(${target} PRIVATE $<$<COMPILE_LANGUAGE:CXX>:-Wno-restrict>)
  endif()
  if(MEMRA_WERROR)
    target_compile_options(
      ${target} PRIVATE "$<$<COMPILE_LANGUAGE:C,CXX>:-Werror>"
                        "$<$<COMPILE_LANGUAGE:CUDA>:-Werror=all-warnings;-Xcompiler=-Werror>")
  endif()
endfunction()

# The rows path promises the same bits everywhere, so no compiler may contract, flush or
# approximate. These flags must stay last on the command line: call this after every other option,
# and give no source file an option that undoes it.
function(memra_exact_arithmetic target)
  set(host -ffp-contract=off -fno-fast-math)
  set(device -Xcompiler=-ffp-contract=off,-fno-fast-math -fmad=false -ftz=false -prec-div=true)
  target_compile_options(${target} PRIVATE "$<$<COMPILE_LANGUAGE:C,CXX>:${host}>"
                                           "$<$<COMPILE_LANGUAGE:CUDA>:${device}>")
endfunction()

# The shared library itself: includes, name, version script, closed link.
function(memra_library_setup target)
  find_package(Threads REQUIRED)
  memra_common_flags(${target})
  set(map "${PROJECT_SOURCE_DIR}/src/memra.map")
  set_target_properties(
    ${target}
    PROPERTIES VERSION ${PROJECT_VERSION}
               SOVERSION 0
               POSITION_INDEPENDENT_CODE ON
               CUDA_RUNTIME_LIBRARY Static
               LINK_DEPENDS "${map}")
  target_include_directories(
    ${target}
    PUBLIC $<BUILD_INTERFACE:${PROJECT_SOURCE_DIR}/include>
    PRIVATE "${PROJECT_SOURCE_DIR}/src" "${PROJECT_SOURCE_DIR}/cuda")
  target_compile_definitions(
    ${target} PRIVATE MEMRA_BUILDING=1 $<$<BOOL:${MEMRA_WITH_CUDA}>:MEMRA_WITH_CUDA=1>)
  # CUB in a namespace of our own, for a process may hold two; and without NVTX, which reads the
  # environment and loads libraries by itself.
  target_compile_definitions(
    ${target} PRIVATE "$<$<COMPILE_LANGUAGE:CUDA>:CUB_WRAPPED_NAMESPACE=memra_vendored>"
                      "$<$<COMPILE_LANGUAGE:CUDA>:NVTX_DISABLE;CCCL_DISABLE_NVTX>")
  # The static CUDA runtime must not show: the host process may hold another one.
  target_link_options(
    ${target} PRIVATE "LINKER:--version-script=${map}" LINKER:--no-undefined
    LINKER:--exclude-libs,ALL LINKER:-Bsymbolic-functions LINKER:-z,relro,-z,now)
  target_link_libraries(${target} PRIVATE Threads::Threads ${CMAKE_DL_LIBS})
  if(MEMRA_WITH_CUDA AND MEMRA_TESTS)
    set_target_properties(${target} PROPERTIES CUDA_COMPILER_LAUNCHER
                                               "${PROJECT_SOURCE_DIR}/cmake/nvcc_record.sh")
  endif()
  memra_exact_arithmetic(${target})
endfunction()
