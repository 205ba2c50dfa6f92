# Decides whether the CUDA backend is built and for which GPUs.
#
# nvcc is the one on PATH, or the one that the caller names: CMAKE_CUDA_COMPILER, CUDACXX, CUDA_PATH.
# /usr/local/cuda is not searched: a machine that hides nvcc from PATH gets the CPU-only library.
# Result: MEMRA_WITH_CUDA, and MEMRA_CUDA_SUMMARY for people.

set(MEMRA_WITH_CUDA OFF)
set(memra_min_nvcc 12.4)

if(NOT MEMRA_CUDA MATCHES "^(AUTO|ON|OFF)$")
  message(FATAL_ERROR "MEMRA_CUDA is '${MEMRA_CUDA}'; legal are AUTO, ON and OFF")
endif()

macro(memra_no_cuda reason)
  if(MEMRA_CUDA STREQUAL "ON")
    message(FATAL_ERROR "MEMRA_CUDA=ON, but ${reason}. Put nvcc >= ${memra_min_nvcc} on PATH or "
                        "name it with -DCMAKE_CUDA_COMPILER=...")
  endif()
  set(MEMRA_CUDA_SUMMARY "CPU only (${reason})")
endmacro()

if(MEMRA_CUDA STREQUAL "OFF")
  set(MEMRA_CUDA_SUMMARY "CPU only (MEMRA_CUDA=OFF)")
else()
  include(CheckLanguage)
  check_language(CUDA)
  if(NOT CMAKE_CUDA_COMPILER)
    memra_no_cuda("no working nvcc was found")
  else()
    execute_process(COMMAND "${CMAKE_CUDA_COMPILER}" --version OUTPUT_VARIABLE memra_nvcc_text)
    string(REGEX MATCH "release ([0-9]+\\.[0-9]+)" memra_unused "${memra_nvcc_text}")
    set(memra_nvcc_version "${CMAKE_MATCH_1}")
    if(NOT memra_nvcc_version)
      memra_no_cuda("${CMAKE_CUDA_COMPILER} does not tell its version as nvcc does")
    elseif(memra_nvcc_version VERSION_LESS memra_min_nvcc)
      memra_no_cuda("${CMAKE_CUDA_COMPILER} is ${memra_nvcc_version}, older than ${memra_min_nvcc}")
    else()
      set(MEMRA_WITH_CUDA ON)
    endif()
  endif()
endif()

if(MEMRA_WITH_CUDA)
  execute_process(COMMAND "${CMAKE_CUDA_COMPILER}" --list-gpu-code OUTPUT_VARIABLE memra_codes)
  string(REGEX MATCHALL "sm_[0-9]+" memra_codes "${memra_codes}")
  set(CMAKE_CUDA_ARCHITECTURES "")
  foreach(arch IN LISTS MEMRA_CUDA_ARCHITECTURES)
    if(NOT arch MATCHES "^([0-9]+)[af]?(-real|-virtual)?$")
      message(FATAL_ERROR "MEMRA_CUDA_ARCHITECTURES holds '${arch}'; legal are entries such as 80, "
                          "90a, 90a-real (machine code) and 90-virtual (PTX)")
    endif()
    if("sm_${CMAKE_MATCH_1}" IN_LIST memra_codes)
      if(NOT CMAKE_MATCH_2)
        string(APPEND arch "-real")
      endif()
      list(APPEND CMAKE_CUDA_ARCHITECTURES ${arch})
    elseif(MEMRA_CUDA_ARCHITECTURES STREQUAL MEMRA_CUDA_DEFAULT_ARCHITECTURES)
      message(STATUS "nvcc ${memra_nvcc_version} does not know sm_${CMAKE_MATCH_1}: left out")
    else()
      message(FATAL_ERROR "nvcc ${memra_nvcc_version} does not know the GPU target '${arch}' of "
                          "MEMRA_CUDA_ARCHITECTURES; it knows ${memra_codes}")
    endif()
  endforeach()
  if(NOT CMAKE_CUDA_ARCHITECTURES)
    message(FATAL_ERROR "MEMRA_CUDA_ARCHITECTURES is empty; -DMEMRA_CUDA=OFF builds CPU only")
  endif()
  enable_language(CUDA)
  list(JOIN CMAKE_CUDA_ARCHITECTURES " " MEMRA_CUDA_SUMMARY)
  set(MEMRA_CUDA_SUMMARY "CUDA ${memra_nvcc_version} for ${MEMRA_CUDA_SUMMARY}, and CPU")
endif()

message(STATUS "memra ${PROJECT_VERSION}: ${MEMRA_CUDA_SUMMARY}")
